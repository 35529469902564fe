"""Liveness and readiness, the same for every program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.web.response import text

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerwatch_common.web.connection import AnswersRequests
    from peerwatch_common.web.request import Request
    from peerwatch_common.web.response import Response


class WithHealth:
    """Answers ``/-/healthy`` and ``/-/ready`` in front of a program's own endpoints.

    Parameters
    ----------
    program
        Its name, such as ``peerwatch-exporter``.
    readiness
        Returns whether what it serves means something, and a sentence why.
    app
        Answers everything else.
    """

    def __init__(
        self, program: str, readiness: Callable[[], tuple[bool, str]], app: AnswersRequests
    ) -> None:
        self._program = program
        self._readiness = readiness
        self._app = app

    def answer(self, request: Request) -> Response:
        """Return the answer to a request."""
        if request.path == "/-/healthy":
            return text(200, f"{self._program} is healthy.")
        if request.path == "/-/ready":
            ready, sentence = self._readiness()
            return text(200 if ready else 503, sentence.rstrip("\n"))
        return self._app.answer(request)
