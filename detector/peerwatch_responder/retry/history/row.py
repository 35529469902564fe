"""One row of the history: an advice, or a person's correction of one."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from peerwatch_responder.retry.answer import KINDS, REASONS, Kind

RowKind = Literal["advice", "correction"]


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One row.

    Parameters
    ----------
    kind
        ``advice``, or ``correction``: what a person says should have been advised.
    time
        When it was written, in Unix seconds.
    id
        Of the advice; a correction has that of what it corrects.
    job, attempt
        The job, and which run of it.
    fingerprint
        Of the root; empty: there was none.
    advice, reason
        What was said; a correction's reason is ``correction``.
    step
        The last step that the attempt finished; None: unknown.
    text
        The lines that were looked at, without what is private: what ``learn`` reads.
    note
        What the person adds.
    """

    kind: RowKind
    time: float
    id: str
    job: str
    attempt: str
    fingerprint: str
    advice: Kind
    reason: str
    step: int | None = None
    text: str = ""
    note: str = ""

    def line(self) -> bytes:
        """Return it as a line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False).encode("utf-8", "replace") + b"\n"


_NAMES = {each.name for each in fields(HistoryRow)}
_TEXTS = ("id", "job", "attempt", "fingerprint", "text", "note")


def parse_row(line: bytes) -> HistoryRow | None:
    """Return a row; None: the line is none, such as one that was not written to its end."""
    try:
        data: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    data = {name: value for name, value in data.items() if name in _NAMES}
    if (
        data.get("kind") not in get_args(RowKind)
        or data.get("advice") not in KINDS
        or data.get("reason") not in REASONS
        or not _is_number(data.get("time"))
        or not (data.get("step") is None or _is_number(data["step"]))
        or not all(isinstance(data.get(name, ""), str) for name in _TEXTS)
    ):
        return None
    try:
        return HistoryRow(**data)
    except TypeError:
        return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
