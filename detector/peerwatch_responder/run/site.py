"""What the responder serves besides the webhook: views, metrics, and orders of a person."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from peerwatch_common.metrics.exposition import (
    OPENMETRICS_CONTENT_TYPE,
    TEXT_CONTENT_TYPE,
    Renderer,
)
from peerwatch_common.web.negotiation import prefers_openmetrics
from peerwatch_common.web.response import Response, text
from peerwatch_responder.retry.history.counts import AdviceCounts
from peerwatch_responder.retry.metrics import families as retry_families
from peerwatch_responder.run.history import history_of
from peerwatch_responder.run.metrics import families
from peerwatch_responder.run.orders import OrderError, obey
from peerwatch_responder.run.view import view_of
from peerwatch_responder.webhook.app import bears

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from peerwatch_common.web.request import Request
    from peerwatch_responder.policy.plan import Plan
    from peerwatch_responder.policy.state import State
    from peerwatch_responder.run.responder import Responder

_LOG = logging.getLogger(__name__)

STATUS, HISTORY, ORDERS = "/api/v1/status", "/api/v1/history", "/api/v1/orders"


class Site:
    """Answers what is no webhook.

    Parameters
    ----------
    responder
        The running one.
    rejected
        Webhooks that were not taken, by reason.
    token_file
        The token that orders of a person must bear; None: none.
    clock
        Unix time in seconds.
    """

    def __init__(
        self,
        responder: Responder,
        rejected: Counter[str],
        token_file: Path | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._responder = responder
        self._rejected = rejected
        self._token_file = token_file
        self._clock = clock
        self._advice = AdviceCounts(responder.config.retry.history)
        self._answers: Mapping[str, Callable[[Request], Response]] = {
            "/": self._actions,
            "/metrics": self._metrics,
            STATUS: self._status,
            HISTORY: lambda _request: _json(200, self._history()),
        }

    def answer(self, request: Request) -> Response:
        """Return the answer to a request."""
        if request.path == ORDERS:
            return self._order(request)
        if request.method == "POST":
            return text(405, "Nothing is posted here.", ("Allow", "GET, HEAD"))
        found = self._answers.get(request.path)
        if found is None:
            names = ", ".join(self._answers)
            return text(404, f"There is nothing here; there are {names} and {ORDERS}.")
        return found(request)

    def _actions(self, _request: Request) -> Response:
        return Response(200, view_of(self._history()), "text/html; charset=utf-8")

    def _status(self, _request: Request) -> Response:
        return _json(200, status_of(self._responder.state, self._responder.plan))

    def _history(self) -> dict[str, Any]:
        responder = self._responder
        return history_of(
            responder.state,
            responder.plan,
            responder.unknown,
            now=self._clock(),
            dry_run=responder.config.dry_run,
        )

    def _metrics(self, request: Request) -> Response:
        openmetrics = prefers_openmetrics(request.header("accept"))
        found = families(self._responder, self._rejected, self._clock())
        found += retry_families(self._advice.read())
        # A renderer serves one thread; a few series cost nothing.
        body = Renderer().render(found, openmetrics=openmetrics)
        return Response(200, body, OPENMETRICS_CONTENT_TYPE if openmetrics else TEXT_CONTENT_TYPE)

    def _order(self, request: Request) -> Response:
        if request.method != "POST":
            return text(405, "Orders are posted.", ("Allow", "POST"))
        if not bears(request, self._token_file):
            return text(401, "A token is needed.", ("WWW-Authenticate", "Bearer"))
        try:
            order = json.loads(request.body)
        except (ValueError, RecursionError):
            return text(400, "The body is no JSON.")
        responder = self._responder
        try:
            results = obey(
                order, responder.books, responder.actions, responder.config.policy.probation
            )
        except OrderError as error:
            return text(409, str(error))
        responder.wake()
        return _json(200, {"results": results})


def status_of(state: State, plan: Plan | None) -> dict[str, Any]:
    """Return the state and the newest plan as JSON can hold them."""
    decisions = () if plan is None else plan.decisions
    return {
        "paused": state.paused,
        "tripped_at": state.tripped_at,
        "responses": [asdict(each) for each in state.responses.values()],
        "decisions": [
            {
                "verdict": each.verdict,
                "reason": each.reason,
                "text": each.text,
                "rule": each.rule,
                "actions": each.actions,
                "key": each.key,
                "alert": each.alert.name,
                "cluster": each.alert.cluster,
                "node": each.alert.node,
                "job_id": each.alert.job_id,
                "starts_at": each.alert.starts_at,
            }
            for each in decisions
        ],
    }


def _json(status: int, content: object) -> Response:
    body = json.dumps(content).encode()
    return Response(status, body, "application/json")
