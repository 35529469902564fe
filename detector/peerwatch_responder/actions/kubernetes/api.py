"""Requests to the API server: few, small, each with one meaning for every answer.

What is read may be asked again. What is written is sent once: an answer that does not come leaves
open whether it acted, and whoever sent it looks (``UnsureError``).
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import requests
import urllib3

from peerwatch_responder.action import LaterError, RejectedError, UnknownError
from peerwatch_responder.actions.kubernetes.server import access

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from peerwatch_responder.actions.kubernetes.server import Access, ServerOptions

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

# Chosen: half of kubectl's chunk of 500, with room for 128 KiB of each node, which lists the images
# that it has pulled; 50,000 objects in all, ten times the nodes that Kubernetes is made for.
_MAX_BYTES = 32 * 1024**2
_PAGE = 250
_MOST_PAGES = 200
# Chosen: so much is read before the time is looked at again.
_CHUNK = 65_536
# Chosen: over a connection that breaks; what lasts longer is for the next cycle, 5 s later.
_TRIES = 3
_PAUSE_SECONDS = 0.5
# As `kubectl drain` waits after 429; what a server asks for is cut to 1/30 of step_seconds.
_LATER_SECONDS = 5.0
_LONGEST_LATER_SECONDS = 60.0
_UNAUTHORIZED, _FORBIDDEN, NOT_FOUND, _CONFLICT, _TOO_MANY = 401, 403, 404, 409, 429
# What goes wrong on the way; a body that breaks off is urllib3's own error.
_BROKEN = (requests.RequestException, urllib3.exceptions.HTTPError, OSError)


class UnsureError(Exception):
    """No answer came, or one that leaves open whether the request acted."""


class StatusError(RejectedError):
    """The server refused a request, and did nothing.

    Parameters
    ----------
    status
        Of HTTP.
    reason
        Kubernetes' own word, such as ``AlreadyExists``.
    """

    def __init__(self, status: int, reason: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer.

    Parameters
    ----------
    status
        Of HTTP.
    content
        The JSON object; empty where it was none.
    is_json
        Whether it was one.
    retry_after
        Seconds until it may be asked again, as the server says; None: it does not.
    """

    status: int
    content: Mapping[str, Any]
    is_json: bool
    retry_after: float | None

    @property
    def reason(self) -> str:
        """Kubernetes' own word for a refusal."""
        return str(self.content.get("reason") or "")

    @property
    def text(self) -> str:
        """What was answered, as a sentence with its causes."""
        details = self.content.get("details")
        causes = details.get("causes") if isinstance(details, dict) else None
        texts = [self.content.get("message")]
        texts += [each.get("message") for each in causes or () if isinstance(each, dict)]
        said = " ".join(str(each) for each in texts if each)[:500]
        return f"{self.status}: {said}" if said else str(self.status)


class Api:
    """Asks one API server.

    Parameters
    ----------
    options
        Where it is.
    wait
        Waits so many seconds between tries of a reading.
    clock
        Monotonic seconds.
    reach
        Says how the server is reached now.
    """

    def __init__(
        self,
        options: ServerOptions,
        wait: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        reach: Callable[[ServerOptions], Access] = access,
    ) -> None:
        self._options = options
        self.wait = wait
        self._clock = clock
        self._reach = reach

    def get(
        self, what: str, path: str, query: Mapping[str, str] | None = None
    ) -> Mapping[str, Any] | None:
        """Return an object; None: there is no such one.

        Parameters
        ----------
        what
            Verb and resource as RBAC names them, such as ``get nodes``.
        path, query
            Of the address.

        Raises
        ------
        UnknownError
            If it could not be learnt.
        """
        for rest in reversed(range(_TRIES)):
            try:
                answer = self._request("GET", path, query)
            except _BROKEN as error:
                text = f"The API server does not answer to {what}: {error.__class__.__name__}."
            else:
                if answer.status == NOT_FOUND:
                    return None
                if answer.status == 200 and answer.is_json:
                    return answer.content
                text = _unreadable(what, answer)
                if answer.status in {400, _UNAUTHORIZED, _FORBIDDEN}:
                    break
            if rest:
                self.wait(_PAUSE_SECONDS)
        raise UnknownError(text)

    def list(
        self, what: str, path: str, query: Mapping[str, str] | None = None
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the objects of a list, which is read in pages; arguments as ``get``.

        Raises
        ------
        UnknownError
            If it could not be learnt to its end.
        """
        asked = {**(query or {}), "limit": str(_PAGE)}
        for _ in range(_MOST_PAGES):
            page = self.get(what, path, asked)
            items = page.get("items") if page is not None else None
            metadata = page.get("metadata") if page is not None else None
            if not isinstance(items, list) or not isinstance(metadata, dict):
                raise UnknownError(f"The API server's answer to {what} is no list.")
            yield from (each for each in items if isinstance(each, dict))
            follows = metadata.get("continue")
            if not follows:
                return
            asked["continue"] = str(follows)
        raise UnknownError(f"The API server's answer to {what} does not end.")

    def text(self, what: str, path: str, query: Mapping[str, str] | None, most_bytes: int) -> bytes:
        """Return a text, such as the log of a container, and of a longer one its end.

        Parameters
        ----------
        what, path, query
            As ``get``.
        most_bytes
            How much of it is kept.

        Raises
        ------
        UnknownError
            If it could not be learnt.
        """
        try:
            with self._open("GET", path, query) as response:
                end = self._clock() + self._options.timeout_seconds
                content = bytearray()
                read = getattr(response.raw, "read1", response.raw.read)
                while chunk := read(_CHUNK):
                    content += chunk
                    # Cut now and then: each time, most of a long text would be copied for a chunk.
                    if len(content) > 2 * most_bytes:
                        del content[:-most_bytes]
                    if self._clock() > end:
                        raise requests.exceptions.ReadTimeout("is too slow")
                if response.status_code != 200:
                    raise UnknownError(_unreadable(what, _answer(response, bytes(content))))
                return bytes(content[-most_bytes:])
        except _BROKEN as error:
            text = f"The API server does not answer to {what}: {error.__class__.__name__}."
            raise UnknownError(text) from error

    def send(
        self,
        what: str,
        method: str,
        path: str,
        body: object,
        content_type: str = "application/json",
    ) -> Mapping[str, Any]:
        """Send a request that changes something, once; return what was answered.

        Raises
        ------
        LaterError
            If nothing was done, and it may be tried again.
        StatusError
            If nothing was done, and it would be refused again.
        UnsureError
            If it may have been done.
        """
        try:
            answer = self._request(method, path, None, body, content_type)
        except UnknownError as error:
            raise LaterError(str(error)) from error
        except requests.exceptions.ConnectTimeout as error:
            raise LaterError(f"The API server does not answer to {what}.") from error
        except _BROKEN as error:
            if _was_refused(error):
                raise LaterError("The API server's connection was refused.") from error
            name = error.__class__.__name__
            raise UnsureError(f"No answer came to {what}: {name}.") from error
        if 200 <= answer.status < 300:
            return answer.content
        raise _refusal(what, answer)

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: object = None,
        content_type: str = "application/json",
    ) -> Answer:
        end = self._clock() + self._options.timeout_seconds
        with self._open(method, path, query, body, content_type) as response:
            content = bytearray()
            read = getattr(response.raw, "read1", response.raw.read)
            while chunk := read(_CHUNK):
                content += chunk
                if len(content) > _MAX_BYTES:
                    raise requests.exceptions.ContentDecodingError("is too long")
                if self._clock() > end:
                    raise requests.exceptions.ReadTimeout("is too slow")
            return _answer(response, bytes(content))

    @contextmanager
    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: object = None,
        content_type: str = "application/json",
    ) -> Iterator[requests.Response]:
        """Send a request; the answer's body is read by whoever asked."""
        reached = self._reach(self._options)
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if body is not None:
            headers["Content-Type"] = content_type
        if reached.token:
            headers["Authorization"] = f"Bearer {reached.token}"
        with requests.Session() as session:
            # Neither a proxy nor somebody's .netrc may come between.
            session.trust_env = False
            with session.request(
                method,
                reached.url + path + (f"?{urlencode(query)}" if query else ""),
                data=json.dumps(body).encode() if body is not None else None,
                headers=headers,
                timeout=self._options.timeout_seconds,
                allow_redirects=False,
                stream=True,
                verify=reached.ca_file or True,
            ) as response:
                yield response


def _answer(response: requests.Response, content: bytes) -> Answer:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    try:
        after: float | None = float(response.headers["Retry-After"])
    except (KeyError, ValueError):
        after = None
    is_json = isinstance(found, dict)
    return Answer(response.status_code, found if is_json else {}, is_json, after)


def _unreadable(what: str, answer: Answer) -> str:
    if answer.status == _FORBIDDEN:
        return _forbidden(what, answer)
    if answer.status == 200:
        return f"The API server's answer to {what} is no JSON object."
    return f"The API server answers to {what} with {answer.text}"


def _forbidden(what: str, answer: Answer) -> str:
    return f"The responder's service account may not {what}: {answer.text}"


def _refusal(what: str, answer: Answer) -> Exception:
    """Return what an answer other than success means for a request that changes something."""
    text = f"The API server answers to {what} with {answer.text}"
    if answer.status == _FORBIDDEN:
        return StatusError(answer.status, answer.reason, _forbidden(what, answer))
    if answer.status == _UNAUTHORIZED:
        # The token may be renewed a moment later.
        return LaterError(text)
    if answer.status == _CONFLICT and answer.reason != "AlreadyExists":
        return LaterError(text, _PAUSE_SECONDS)
    if answer.status == _TOO_MANY:
        seconds = answer.retry_after if answer.retry_after is not None else _LATER_SECONDS
        return LaterError(text, min(max(seconds, _PAUSE_SECONDS), _LONGEST_LATER_SECONDS))
    if 400 <= answer.status < 500:
        return StatusError(answer.status, answer.reason, text)
    return UnsureError(text)


def _was_refused(error: BaseException) -> bool:
    """Whether a connection was never made, so that nothing can have been sent."""
    text = repr(error)
    return "NewConnectionError" in text or "NameResolutionError" in text
