"""What the program serves: its metrics, and the report as a view and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from peerwatch_common.metrics.exposition import (
    OPENMETRICS_CONTENT_TYPE,
    TEXT_CONTENT_TYPE,
    Renderer,
)
from peerwatch_common.web.negotiation import prefers_openmetrics
from peerwatch_common.web.response import Response, text
from peerwatch_reliability.report.view import view_of
from peerwatch_reliability.run.metrics import families

if TYPE_CHECKING:
    from peerwatch_common.web.request import Request
    from peerwatch_reliability.run.service import Service

REPORT = "/api/v1/report"


class Site:
    """Answers requests.

    Parameters
    ----------
    service
        The running program.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def answer(self, request: Request) -> Response:
        """Return the answer to a request."""
        if request.method == "POST":
            return text(405, "Nothing is posted here.", ("Allow", "GET, HEAD"))
        if request.path == "/metrics":
            openmetrics = prefers_openmetrics(request.header("accept"))
            body = Renderer().render(families(self._service), openmetrics=openmetrics)
            return Response(
                200, body, OPENMETRICS_CONTENT_TYPE if openmetrics else TEXT_CONTENT_TYPE
            )
        if request.path not in {"/", REPORT}:
            return text(404, f"There is nothing here; there are /, /metrics and {REPORT}.")
        document = self._service.document
        if document is None:
            return text(503, "The books have not been made yet; the log says why.")
        if request.path == REPORT:
            return Response(200, json.dumps(document).encode(), "application/json")
        return Response(200, view_of(document), "text/html; charset=utf-8")
