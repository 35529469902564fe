"""What stands around the series in a response of the query API: status, warnings, partial or not.

Fields: "HTTP API", section "Format overview", of the Prometheus documentation (``warnings`` and,
since 3.0, ``infos``); Thanos' Query sends ``warnings`` when a store did not answer
(thanos.io, "Query", "Partial response"); VictoriaMetrics says ``isPartial``; Mimir answers as
Prometheus does.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from peerwatch_common.promql import missing_parts
from peerwatch_detector.errors import ReadError, ReadFailure, ThrottledError
from peerwatch_detector.reading.settings import ReadingSettings
from peerwatch_detector.reading.transport.connection import Response, read_text
from peerwatch_detector.reading.transport.hints import hint_of_answer

# The key of the list of series, never the inside of a string: there quotes are escaped.
RESULT = re.compile(rb'[{,]\s*"result"\s*:\s*\[')
# Of 4xx responses those that a smaller request would not get.
_TOO_MUCH = re.compile(
    r"maximum resolution|too many|exceed|limit|larger than|max-|out of memory", re.IGNORECASE
)
# Characters of a foreign text that an error quotes: two lines of a terminal or a log.
_LONGEST_SHOWN = 200
# The names of Thanos and of VictoriaMetrics; others pass over them.
_REFUSE_PARTIAL = {"partial_response": "false", "deny_partial_response": "1"}


@dataclass(frozen=True, slots=True)
class Annotations:
    """What a server said beside the series.

    Parameters
    ----------
    warnings, infos
        As sent.
    partial
        Whether something is missing in the response.
    """

    warnings: tuple[str, ...] = ()
    infos: tuple[str, ...] = ()
    partial: bool = False

    def __add__(self, other: Annotations) -> Annotations:
        return Annotations(
            tuple(dict.fromkeys(self.warnings + other.warnings)),
            tuple(dict.fromkeys(self.infos + other.infos)),
            self.partial or other.partial,
        )


def data_of(url: str, text: bytes, expected: str) -> tuple[dict[str, Any], Annotations]:
    """Check a response and return its data, and the annotations beside them.

    Parameters
    ----------
    url
        Who sent it.
    text
        The response; the caller may have taken the series out of it.
    expected
        The ``resultType`` that was asked for.

    Raises
    ------
    ReadError
        If it is no successful response of the query API.
    """
    try:
        try:
            response = json.loads(text)
        except UnicodeDecodeError:
            # VictoriaMetrics hands out the bytes of a label as they came.
            response = json.loads(text.decode(errors="replace"))
    except RecursionError as error:
        raise ReadError(
            "malformed",
            f"{url} answered with JSON that is nested too deeply; is prometheus.url the query API?",
        ) from error
    except ValueError as error:
        if text[:1] == b"{":
            raise ReadError("truncated", f"{url} broke off in mid-response: {error}.") from error
        raise ReadError(
            "malformed",
            f"{url} answered with something that is not JSON: {text[:80]!r}; is prometheus.url "
            "the query API?",
        ) from error
    data = response.get("data") if isinstance(response, dict) else None
    if not isinstance(data, dict) or response.get("status") != "success":
        reason = (
            response.get("error", "no reason given") if isinstance(response, dict) else response
        )
        raise ReadError("malformed", f"{url} answered 200: {str(reason)[:_LONGEST_SHOWN]}.")
    if data.get("resultType") != expected:
        raise ReadError(
            "malformed", f"{url}: expected a {expected}, got {data.get('resultType')!r}."
        )
    warnings, infos = _texts(response.get("warnings")), _texts(response.get("infos"))
    is_partial = bool(missing_parts(warnings)) or response.get("isPartial") is True
    return data, Annotations(warnings, infos, is_partial)


def _texts(found: object) -> tuple[str, ...]:
    return tuple(str(text) for text in found) if isinstance(found, list) else ()


def common_form(settings: ReadingSettings) -> dict[str, str]:
    """Return the fields that every request to the query API carries."""
    form = {"timeout": f"{settings.timeout_seconds:g}s"}
    return form | _REFUSE_PARTIAL if settings.partial == "refuse" else form


def check_whole(url: str, annotations: Annotations, settings: ReadingSettings) -> None:
    """Refuse a response that is partial, where the settings say so.

    Raises
    ------
    ReadError
        ``refused``.
    """
    if annotations.partial and settings.partial == "refuse":
        reason = "; ".join(annotations.warnings) or "no reason"
        raise ReadError("refused", f"{url} gave a partial response: {reason}.")


def check_status(response: Response) -> None:
    """Refuse a response that is an error.

    Raises
    ------
    ReadError
        ``refused`` if a smaller request may succeed, else ``http_4xx`` or ``http_5xx``.
    ThrottledError
        If the server asks to be asked less; a smaller request would be one more.
    """
    if response.status < 300:
        return
    status = response.status
    text = _error_text(read_text(response))
    hint = hint_of_answer(status, text, response.location)
    if status < 400:
        response.body.close()
        raise ReadError("malformed", f"{response.url} answered {status}: {hint}.")
    also = f"; {hint}" if hint else ""
    message = f"{response.url} answered {status}: {text}{also}."
    if status == 429 or (status == 503 and response.retry_after > 0):
        raise ThrottledError(message, response.retry_after)
    too_much = status in {413, 422} or (status == 400 and _TOO_MUCH.search(text))
    reason: ReadFailure = "http_5xx" if status >= 500 else "refused" if too_much else "http_4xx"
    if status == 503 and "timed out" in text:
        reason = "timeout"
    raise ReadError(reason, message)


def _error_text(body: bytes) -> str:
    """Return the reason in an error's body: a field of JSON, or plain text."""
    try:
        response = json.loads(body)
    except (ValueError, RecursionError):
        response = None
    if isinstance(response, dict) and "error" in response:
        return str(response["error"])[:1000].rstrip(".")
    return body[:_LONGEST_SHOWN].decode(errors="replace").strip().rstrip(".") or "no text"
