"""Answers ``/stack``: where the threads of a rank are in its Python code, at this moment.

torch's own worker server dumps them, on the socket that the hook made. Off by default: a stack
shows names of files and functions, and is given only to those who had to log in.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from peerwatch_common.web.response import Response, text
from peerwatch_exporter.sources.collectives.errors import CollectiveSourceError
from peerwatch_exporter.sources.collectives.unix_http import NotFoundError, ask

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from peerwatch_exporter.sources.jobs.known_ranks import KnownRanks

# 200 threads, each of 50 frames of 100 bytes.
_MOST_BYTES = 1 << 20
# Chosen: a program that keeps the interpreter for longer has no stack to show.
_TIMEOUT_SECONDS = 5.0
# A dump holds the interpreter of the training process for a moment.
_MOST_ANSWERS = 1
# A job's name has 128 characters, three bytes each once it is quoted, and a rank seven digits.
_LONGEST_QUERY = 500
_PARAMETERS = ("job_id", "rank")


class StackAnswers:
    """Asks the worker servers of the ranks on this node.

    Parameters
    ----------
    directory
        Where the hook makes their sockets.
    ranks
        The ranks and their jobs.
    protected
        Returns whether clients have to log in.
    """

    def __init__(self, directory: Path, ranks: KnownRanks, protected: Callable[[], bool]) -> None:
        self._directory = directory
        self._ranks = ranks
        self._protected = protected
        self._free = threading.BoundedSemaphore(_MOST_ANSWERS)

    def answer(self, query: str) -> Response:
        """Return the answer to a query string with ``job_id`` and ``rank``."""
        if not self._protected():
            return text(
                403,
                "Stacks are given only to those who log in: set basic_auth_users in "
                "web.config_file.",
            )
        given = dict(parse_qsl(query[:_LONGEST_QUERY], keep_blank_values=True))
        job_id, rank = given.get("job_id", ""), given.get("rank", "")
        if set(given) != set(_PARAMETERS) or not (rank.isascii() and rank.isdigit()):
            return text(400, "Ask for /stack?job_id=JOB&rank=NUMBER.")
        known = self._ranks.all() or ()
        if not any(k.job_id == job_id and k.rank == int(rank) and k.is_alive for k in known):
            return text(404, f"No rank {int(rank)} of job {job_id!r:.130} runs on this node.")
        if not self._free.acquire(blocking=False):
            return text(503, "Another stack is being read; try again.", ("Retry-After", "2"))
        try:
            return self._dump(int(rank))
        finally:
            self._free.release()

    def _dump(self, rank: int) -> Response:
        path = self._directory / f"rank-{rank}.sock"
        try:
            dump = ask(
                path,
                "POST",
                "/handler/dump_traceback",
                timeout_seconds=_TIMEOUT_SECONDS,
                most_bytes=_MOST_BYTES,
            )
        except NotFoundError:
            return text(404, f"The worker server of rank {rank} cannot dump stacks: torch 2.5 can.")
        except CollectiveSourceError as error:
            slow = error.error_class == "recorder_no_answer"
            return text(504 if slow else 502, f"Rank {rank} gives no stack: {error}.")
        headers = (("Cache-Control", "no-store"),)
        return Response(200, bytes(dump), "text/plain; charset=utf-8", headers)
