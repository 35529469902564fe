"""Takes Alertmanager's webhook: what it says is on the disk before it is answered."""

from __future__ import annotations

import codecs
import hmac
import logging
from typing import TYPE_CHECKING

from peerwatch_common.web.response import text
from peerwatch_responder.webhook.payload import PayloadError, parse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from peerwatch_common.web.connection import AnswersRequests
    from peerwatch_common.web.request import Request
    from peerwatch_common.web.response import Response
    from peerwatch_responder.alert import Alert

_LOG = logging.getLogger(__name__)

PATH = "/api/v1/alerts"


def bears(request: Request, token_file: Path | None) -> bool:
    """Whether a request bears the token, or none is asked for.

    The file is read each time, so that a new token needs no restart; one that cannot be read lets
    nobody in.
    """
    if token_file is None:
        return True
    try:
        # Editors of Windows mark their UTF-8 as such.
        token = token_file.read_bytes().removeprefix(codecs.BOM_UTF8).strip()
    except OSError as error:
        _LOG.error("cannot read token file=%s detail=%r", token_file, error.strerror)
        return False
    scheme, _, given = request.header("authorization").partition(" ")
    same = hmac.compare_digest(given.strip().encode("latin-1"), token)
    return bool(token) and scheme.lower() == "bearer" and same


class WebhookApp:
    """Answers the webhook, and hands all other requests on.

    Parameters
    ----------
    receive
        Takes alerts; they are on the disk when it returns.
    rest
        Answers what is no webhook.
    token_file
        The token that a webhook must bear; None: none.
    rejected
        Called with the reason of each webhook that was not taken.
    """

    def __init__(
        self,
        receive: Callable[[tuple[Alert, ...]], None],
        rest: AnswersRequests,
        token_file: Path | None,
        rejected: Callable[[str], None],
    ) -> None:
        self._receive = receive
        self._rest = rest
        self._token_file = token_file
        self._rejected = rejected

    def answer(self, request: Request) -> Response:
        """Return the answer to a request."""
        if request.path != PATH:
            return self._rest.answer(request)
        if request.method != "POST":
            return text(405, "Alerts are posted.", ("Allow", "POST"))
        if not bears(request, self._token_file):
            self._rejected("token")
            challenge = ("WWW-Authenticate", "Bearer")
            return text(401, "A token is needed.", challenge)
        try:
            alerts = parse(request.body)
        except PayloadError as error:
            self._rejected("payload")
            _LOG.warning("webhook not taken client=%s detail=%s", request.client, str(error))
            return text(400, str(error))
        self._receive(alerts)
        return text(200, f"{len(alerts)} alerts are taken.")
