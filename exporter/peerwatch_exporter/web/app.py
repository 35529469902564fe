"""Which path answers what, besides liveness and readiness."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qs

from peerwatch_common.metrics.exposition import OPENMETRICS_CONTENT_TYPE, TEXT_CONTENT_TYPE
from peerwatch_common.web.negotiation import prefers_openmetrics, scrape_timeout
from peerwatch_common.web.response import Response, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerwatch_common.web.pieces import Pieces
    from peerwatch_common.web.request import Request

    Burst = Callable[[str], tuple[str, bytes]]
    Spans = Callable[[str], Response]

_SCRAPER = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_STATUS = re.compile(r"([1-5][0-9]{2})\b")
_NO_STORE = ("Cache-Control", "no-store")


class Exposition(Protocol):
    """What renders the metrics; ``pages.Endpoints`` does."""

    def full(self, *, openmetrics: bool, timeout: float) -> bytes | Pieces:
        """Return all metrics."""

    def fast(self, *, openmetrics: bool, scraper: str | None, timeout: float) -> bytes | Pieces:
        """Return the metrics that the detector reads every second."""


class App:
    """Answers the exporter's requests; knows neither sockets nor passwords.

    Parameters
    ----------
    exposition
        What renders the metrics.
    landing
        Returns the HTML of the landing page.
    burst
        Answers ``/burst`` from its query string with a status and JSON; ``None`` if the sampler
        is off.
    spans
        Answers ``/spans`` from its query string; ``None`` if no directory is set.
    stack
        Answers ``/stack`` from its query string; ``None`` if stacks are not given.
    """

    def __init__(
        self,
        exposition: Exposition,
        landing: Callable[[], bytes],
        burst: Burst | None = None,
        spans: Spans | None = None,
        stack: Spans | None = None,
    ) -> None:
        self._exposition = exposition
        self._landing = landing
        self._burst = burst
        self._spans = spans
        self._stack = stack

    def answer(self, request: Request) -> Response:
        """Return the answer to a request."""
        match request.path:
            case "/metrics" | "/metrics/fast":
                return self._metrics(request)
            case "/burst":
                return self._bursts(request.query)
            case "/spans":
                return self._single_spans(request.query)
            case "/stack" if self._stack is not None:
                return self._stack(request.query)
            case "/":
                html = "text/html; charset=utf-8"
                return Response(200, self._landing(), html, (_NO_STORE,))
        return text(
            404, "There is /metrics, /metrics/fast, /burst, /spans, /-/healthy, /-/ready and /."
        )

    def _metrics(self, request: Request) -> Response:
        openmetrics = prefers_openmetrics(request.header("accept"))
        timeout = scrape_timeout(request.header("x-prometheus-scrape-timeout-seconds"))
        if request.path == "/metrics":
            body = self._exposition.full(openmetrics=openmetrics, timeout=timeout)
        else:
            scraper = parse_qs(request.query).get("scraper", [""])[-1]
            if scraper and not _SCRAPER.fullmatch(scraper):
                return text(
                    400,
                    "scraper must be 1 to 64 letters, digits, '_', '.', ':' or '-', "
                    "such as /metrics/fast?scraper=prometheus-0.",
                )
            # Who asks for the head alone is given no samples, so none are to be counted as given.
            who = None if request.method == "HEAD" else scraper or request.client
            body = self._exposition.fast(openmetrics=openmetrics, scraper=who, timeout=timeout)
        return Response(200, body, OPENMETRICS_CONTENT_TYPE if openmetrics else TEXT_CONTENT_TYPE)

    def _single_spans(self, query: str) -> Response:
        if self._spans is None:
            return text(404, "There are no spans: set heartbeat.directory in the settings.")
        return self._spans(query)

    def _bursts(self, query: str) -> Response:
        if self._burst is None:
            return text(
                404, "The sampler is off: set sampler.interval_milliseconds in the settings."
            )
        line, body = self._burst(query)
        found = _STATUS.match(line)
        status = int(found[1]) if found else 500
        return Response(status, body, "application/json", (_NO_STORE,))
