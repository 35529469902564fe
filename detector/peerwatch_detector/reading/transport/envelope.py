"""What stands around the series in an answer of the query API: status, warnings, partial or not.

Fields: "HTTP API", section "Format overview", of the Prometheus documentation (``warnings`` and,
since 3.0, ``infos``); Thanos' Query sends ``warnings`` when a store did not answer
(thanos.io, "Query", "Partial response"); VictoriaMetrics says ``isPartial``; Mimir answers as
Prometheus does. A warning about the query's text itself begins with "PromQL warning".
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from peerwatch_detector.errors import ReadError, ReadFailure
from peerwatch_detector.reading.transport.connection import Answer, read_error_text

# The key of the list of series, never the inside of a string: there quotes are escaped.
RESULT = re.compile(rb'[{,]\s*"result"\s*:\s*\[')
# Of 4xx answers those that a smaller question would not get.
_TOO_MUCH = re.compile(
    r"maximum resolution|too many|exceed|limit|larger than|max-|out of memory", re.IGNORECASE
)
_LONGEST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Remarks:
    """What a server said beside the series.

    Parameters
    ----------
    warnings, infos
        As sent.
    partial
        Whether something is missing in the answer.
    """

    warnings: tuple[str, ...] = ()
    infos: tuple[str, ...] = ()
    partial: bool = False

    def __add__(self, other: Remarks) -> Remarks:
        return Remarks(
            tuple(dict.fromkeys(self.warnings + other.warnings)),
            tuple(dict.fromkeys(self.infos + other.infos)),
            self.partial or other.partial,
        )


def data_of(url: str, text: bytes, expected: str) -> tuple[dict[str, Any], Remarks]:
    """Check an answer and return its data, and the remarks beside them.

    Parameters
    ----------
    url
        Who sent it.
    text
        The answer; the caller may have taken the series out of it.
    expected
        The ``resultType`` that was asked for.

    Raises
    ------
    ReadError
        If it is no successful answer of the query API.
    """
    try:
        answer = json.loads(text)
    except ValueError as error:
        if text[:1] == b"{":
            raise ReadError("truncated", f"{url} broke off in mid-answer: {error}.") from error
        raise ReadError(
            "malformed",
            f"{url} answered with something that is not JSON: {text[:80]!r}; is prometheus.url "
            "the query API?",
        ) from error
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, dict) or answer.get("status") != "success":
        told = answer.get("error", "no reason given") if isinstance(answer, dict) else answer
        raise ReadError("malformed", f"{url} answered 200: {str(told)[:_LONGEST_SHOWN]}.")
    if data.get("resultType") != expected:
        raise ReadError(
            "malformed", f"{url}: expected a {expected}, got {data.get('resultType')!r}."
        )
    warnings, infos = _texts(answer.get("warnings")), _texts(answer.get("infos"))
    missing = [one for one in warnings if not one.startswith("PromQL warning")]
    return data, Remarks(warnings, infos, bool(missing) or answer.get("isPartial") is True)


def _texts(found: object) -> tuple[str, ...]:
    return tuple(str(one) for one in found) if isinstance(found, list) else ()


def check_status(answer: Answer) -> None:
    """Refuse an answer that is an error.

    Raises
    ------
    ReadError
        ``refused`` if a smaller question may succeed, else ``http_4xx`` or ``http_5xx``.
    """
    if answer.status < 300:
        return
    status = answer.status
    text = _error_text(read_error_text(answer))
    if status < 400:
        answer.body.close()
        raise ReadError(
            "malformed",
            f"{answer.url} answered {status}: it points elsewhere; set prometheus.url "
            "to where it points.",
        )
    too_much = status in {413, 422} or (status in {400, 429} and _TOO_MUCH.search(text))
    reason: ReadFailure = "http_5xx" if status >= 500 else "refused" if too_much else "http_4xx"
    if status == 503 and "timed out" in text:
        reason = "timeout"
    raise ReadError(reason, f"{answer.url} answered {status}: {text}.")


def _error_text(body: bytes) -> str:
    """Return the reason in an error's body: a field of JSON, or plain text."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if isinstance(answer, dict) and "error" in answer:
        return str(answer["error"])[:1000].rstrip(".")
    return body[:_LONGEST_SHOWN].decode(errors="replace").strip().rstrip(".") or "no text"
