"""Files that the settings name, as patterns with the job's id and the rank's number."""

from __future__ import annotations

import glob
import heapq
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.logs.found import Claim, Unread, reason_of, status_of
from peerwatch_exporter.sources.logs.providers.matching import matching

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from peerwatch_exporter.sources.logs.found import Guard
    from peerwatch_exporter.sources.logs.targets import Targets


class ConfiguredPaths:
    """Finds the files that patterns match.

    Parameters
    ----------
    patterns
        Absolute paths with wildcards, ``{job_id}`` and ``{rank}``.
    most_files
        Of one pattern.
    """

    name = "path"

    def __init__(self, patterns: Sequence[str], most_files: int) -> None:
        self._patterns = patterns
        self._most_files = most_files

    def find(self, targets: Targets, guard: Guard) -> Iterator[Claim | Unread]:
        """Yield the files of all patterns."""
        for pattern in self._patterns:
            for job_id, rank, expanded in expanded_patterns(pattern, targets):
                try:
                    guard.enter(pattern)
                except OSError as error:
                    yield Unread(self.name, reason_of(error))
                    break
                yield from self._files(pattern, expanded, job_id, rank, guard)

    def _files(
        self, pattern: str, expanded: str, job_id: str, rank: int | None, guard: Guard
    ) -> Iterator[Claim | Unread]:
        found: list[tuple[str, os.stat_result]] = []
        for path in matching(expanded):
            # Each time, for whoever watches that it goes on.
            guard.enter(pattern)
            status = status_of(path)
            if status == "not_a_file":
                # A directory beside the files.
                continue
            if isinstance(status, str):
                yield Unread(self.name, status)
            else:
                found.append((path, status))
        # What jobs of today write is among the newest.
        newest = heapq.nlargest(self._most_files, found, key=lambda each: each[1].st_mtime)
        for path, status in newest:
            yield Claim(path, pattern, self.name, status, job_id, rank, names_rank=rank is not None)
        for _ in range(len(found) - len(newest)):
            yield Unread(self.name, "too_many")


def expanded_patterns(pattern: str, targets: Targets) -> Iterator[tuple[str, int | None, str]]:
    """Yield job id, rank and pattern for each job and rank of this node that a pattern asks for.

    A pattern without ``{job_id}`` is of the node's only job, or of none if there are several.
    """
    if "{rank}" in pattern:
        for rank in targets.ranks:
            yield from _expanded(pattern, rank.job_id, rank.rank)
    elif "{job_id}" in pattern:
        for job_id in targets.job_ids:
            yield from _expanded(pattern, job_id, None)
    else:
        job_ids = targets.job_ids
        yield from _expanded(pattern, job_ids[0] if len(job_ids) == 1 else "", None)


def _expanded(pattern: str, job_id: str, rank: int | None) -> Iterator[tuple[str, int | None, str]]:
    # Anybody may call a job whatever they like: its id is one name in a path.
    name = job_id.replace("/", "_")
    if "{job_id}" in pattern and (not name or set(name) == {"."}):
        return
    number = "" if rank is None else str(rank)
    yield job_id, rank, pattern.format(job_id=glob.escape(name), rank=number)
