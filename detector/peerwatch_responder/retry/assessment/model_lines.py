"""The lines of a log that a model is shown: those around the root, and the last ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.signatures.prefixes import lines_in, without_escapes
from peerwatch_responder.retry.evidence.search import pieces

if TYPE_CHECKING:
    from peerwatch_responder.retry.evidence.observed import Observed

# Chosen: several times the 64 lines that a model reads (selection.py). A traceback and other ranks
# follow the root, so more is shown after it than before.
_BEFORE_BYTES, _AFTER_BYTES = 8 * 1024, 24 * 1024
_LAST_BYTES = 16 * 1024
_MOST_LINES = 400
# About what a model reads of a line (selection.LONGEST_LINE).
_LINE_BYTES = 2_000


def lines_for_model(observed: Observed, number: int, offset: int) -> list[str]:
    """Return what a model is shown of a log, in its order and without prefixes.

    Parameters
    ----------
    observed
        The logs.
    number
        Which of them has the root.
    offset
        Where the root stands in it, in bytes.
    """
    if number >= len(observed.logs) or observed.logs[number].is_binary:
        return []
    text, start = b"", 0
    for piece, begin in pieces(observed.logs[number]):
        if not text or offset >= begin:
            text, start = piece, begin
    place = max(0, offset - start)
    first, last = max(0, place - _BEFORE_BYTES), place + _AFTER_BYTES
    end = max(last, len(text) - _LAST_BYTES)
    shown = text[first:last] + (b"\n" + text[end:] if last < end else text[last:])
    return [
        line
        for raw in shown.split(b"\n")[:_MOST_LINES]
        for line in _plain(raw[:_LINE_BYTES])
        if line
    ]


def _plain(raw: bytes) -> list[str]:
    text = without_escapes(raw.replace(b"\0", b""))
    return [line.text.decode("utf-8", "replace").rstrip() for line in lines_in(text, 0.0)]
