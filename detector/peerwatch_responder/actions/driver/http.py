"""Gives an order to a training driver by HTTP, signed, with an identity over all tries."""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from pydantic import Field, FilePath

from peerwatch_responder.action import (
    AmbiguousError,
    LaterError,
    RejectedError,
    StepState,
    register,
)
from peerwatch_responder.actions.driver.order import (
    MAX_ANSWER_BYTES,
    DriverOptions,
    body_of,
    identity,
    starts_again,
    understood,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from peerwatch_responder.action import Before, Target

# Chosen: in a cluster's network a connection takes milliseconds; a driver that needs more than
# half a minute for its answer says 202, and is asked 150 times in the default deadline of 300 s.
_CONNECT_SECONDS, _READ_SECONDS = 5.0, 30.0
_POLL_SECONDS = 2.0
_OK, _ACCEPTED = 200, 202
# What goes wrong on the way; a body that breaks off is urllib3's own error.
_BROKEN = (requests.exceptions.RequestException, urllib3.exceptions.HTTPError)
# Nothing was done, by their definition (RFC 9110, RFC 6585).
_NOT_NOW = {429, 503}


class HttpOptions(DriverOptions):
    """Settings of ``driver_http``."""

    url: str = Field(pattern=r"^https?://", description="Where orders are posted.")
    secret_file: FilePath | None = Field(
        default=None, description="File with the secret that signs orders; unset: they are not."
    )
    ca_file: FilePath | None = Field(
        default=None, description="Certificates that the driver's may be signed by."
    )


@register(
    "driver_http",
    "gives an order to a training driver by HTTP",
    takes_out=False,
    options=HttpOptions,
    restarts=starts_again,
)
class DriverHttp:
    """Posts each order.

    The answer is 200 with ``{"outcome": "done"}`` or ``"rejected"``, or 202 with the address of the
    answer to come in ``Location``. 429 and 503 say that nothing was done. Anything else, and a
    connection that broke after the order was sent, leave open what was done.

    Parameters
    ----------
    options
        Its settings.
    wait
        Waits so many seconds.
    clock
        Unix time in seconds.
    """

    def __init__(
        self,
        options: HttpOptions,
        wait: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self._wait = wait
        self._clock = clock

    def steps(self, target: Target) -> Sequence[_Order]:
        """Return the one step there is."""
        return [self._order(target, self._options.want)]

    def undo(self, target: Target, step: str, before: Before) -> str:
        """Give the opposite order, where there is one; otherwise as ``Action.undo``."""
        if self._options.undo is None:
            return "has no opposite order"
        return self._order(target, self._options.undo).do(before)

    def _order(self, target: Target, want: str) -> _Order:
        return _Order(self._options, target, want, self._wait, self._clock)


class _Order:
    def __init__(
        self,
        options: HttpOptions,
        target: Target,
        want: str,
        wait: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        self._options = options
        self._target = target
        self._wait = wait
        self._clock = clock
        self.name = want

    def inspect(self) -> StepState:
        # Only the driver knows, by the order's identity.
        return StepState("open", f"{self.name} at {urlsplit(self._options.url).hostname}")

    def do(self, before: Before) -> str:
        options = self._options
        order = identity(self._target, self.name, "http")
        body = body_of(self._target, self.name, order, options.deadline_seconds)
        end = self._clock() + options.deadline_seconds
        try:
            status, location, answer = self._request("POST", options.url, body, order)
        except requests.exceptions.ConnectTimeout as error:
            raise LaterError(f"The driver does not answer: {error.__class__.__name__}") from error
        except requests.exceptions.ConnectionError as error:
            if _was_refused(error):
                raise LaterError("The driver's connection was refused.") from error
            raise AmbiguousError("The connection broke after the order was sent.") from error
        except _BROKEN as error:
            raise AmbiguousError(f"No answer: {error.__class__.__name__}.") from error
        while status == _ACCEPTED and self._clock() < end:
            self._wait(_POLL_SECONDS)
            try:
                status, location, answer = self._request("GET", location, None, order)
            except (*_BROKEN, LaterError):
                # It is asked, not told, anew.
                continue
        return _answered(status, answer, options.deadline_seconds)

    def _request(
        self, method: str, url: str, body: bytes | None, order: str
    ) -> tuple[int, str, bytes]:
        headers = {"Idempotency-Key": order, "Content-Type": "application/json"}
        if self._options.secret_file is not None:
            headers |= signature(
                self._secret(self._options.secret_file), body or b"", self._clock()
            )
        with requests.request(
            method,
            url,
            data=body,
            headers=headers,
            timeout=(_CONNECT_SECONDS, _READ_SECONDS),
            allow_redirects=False,
            stream=True,
            verify=str(self._options.ca_file) if self._options.ca_file else True,
        ) as response:
            answer = response.raw.read(MAX_ANSWER_BYTES + 1, decode_content=True)
            location = urljoin(url, response.headers.get("Location", url))
            # A driver that sends us elsewhere would get our signature there.
            if urlsplit(location)[:2] != urlsplit(self._options.url)[:2]:
                location = self._options.url
            return response.status_code, location, answer

    def _secret(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            # Such as while it is replaced: nothing was sent.
            raise LaterError(f"The secret cannot be read: {path}: {error.strerror}.") from error


def signature(secret: bytes, body: bytes, now: float) -> dict[str, str]:
    """Return the headers by which a driver knows that an order is ours, and new.

    Parameters
    ----------
    secret
        What both know; white space around it does not count.
    body
        The order.
    now
        Unix time in seconds.
    """
    stamp = f"{now:.0f}"
    digest = hmac.new(secret.strip(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {"X-Peerwatch-Timestamp": stamp, "X-Peerwatch-Signature": f"sha256={digest}"}


def _answered(status: int, answer: bytes, seconds: float) -> str:
    if status == _OK:
        return understood(answer)
    if status in _NOT_NOW:
        raise LaterError(f"The driver answers {status}.")
    if status == _ACCEPTED:
        raise AmbiguousError(f"It was not done after {seconds:.0f} s.")
    if 400 <= status < 500:
        raise RejectedError(f"The driver answers {status}.")
    raise AmbiguousError(f"The driver answers {status}; whether it acted is unknown.")


def _was_refused(error: BaseException | None) -> bool:
    """Whether a connection was never made, so that nothing can have been sent."""
    text = repr(error)
    return "NewConnectionError" in text or "NameResolutionError" in text
