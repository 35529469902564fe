"""A row of the journal: one line of JSON with a number and a checksum."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from peerwatch_common.errors import PeerwatchError

if TYPE_CHECKING:
    from collections.abc import Mapping

# received: an alert that a rule matches was heard of. wanted: a rule would answer it. planned: it
# will be answered. step: a step of the answer begins, or was done. ended: the answer has reached a
# status that it keeps. tried: its node was checked, to be put back. returned: its node is back at
# work. released: a person has removed our mark. The others are what their names say.
Kind = Literal[
    "received",
    "wanted",
    "planned",
    "refused",
    "step",
    "ended",
    "tried",
    "returned",
    "released",
    "paused",
    "resumed",
    "tripped",
]
KINDS: tuple[Kind, ...] = get_args(Kind)


class RowError(PeerwatchError):
    """A line is no row of a journal; the message says why."""


@dataclass(frozen=True, slots=True)
class Row:
    """One event.

    Parameters
    ----------
    number
        1 for the first of a journal, then one more each.
    time
        Unix seconds.
    kind
        What happened.
    data
        Values that JSON can hold, by name.
    """

    number: int
    time: float
    kind: Kind
    data: Mapping[str, Any]

    def line(self) -> bytes:
        """Return the row as a line, its end included."""
        content = {"number": self.number, "time": self.time, "kind": self.kind, **self.data}
        text = json.dumps(content, allow_nan=False)
        return f'{text[:-1]}, "checksum": "{_checksum(text)}"}}\n'.encode()


def parse_row(line: bytes, number: int) -> Row:
    """Return the row of a line.

    Parameters
    ----------
    line
        Without its end.
    number
        Which one it must be.

    Raises
    ------
    RowError
        If it was changed, is another one, or is no row at all.
    """
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        raise RowError("is no JSON") from None
    if not isinstance(content, dict):
        raise RowError("is no JSON object")
    checksum = content.pop("checksum", None)
    if checksum != _checksum(json.dumps(content)):
        raise RowError("does not match its checksum")
    found, time, kind = (content.pop(name, None) for name in ("number", "time", "kind"))
    if found != number:
        raise RowError(f"has number {found}, not {number}: rows are missing or stand twice")
    if not isinstance(time, float | int) or kind not in KINDS:
        raise RowError("has no time, or a kind that this version does not know")
    return Row(number, float(time), kind, content)


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"
