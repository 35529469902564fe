"""Letters as strokes: no font is needed, and they are sharp at every size.

A letter is strokes, a stroke is points, a point is two digits: x to the right, y up. The base line
is y = 2, small letters reach to 6, capitals and digits to 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

Stroke = Sequence[tuple[int, int]]

_STROKES = {
    "A": "022842 1434", "B": "02083847463505 3544433202", "C": "4738180703123243",
    "D": "02082846442202", "E": "48080242 0535", "F": "480802 0535",
    "G": "47381807031232434525", "H": "0802 4842 0545", "I": "0828 1812 0222",
    "J": "3833221203", "K": "0802 4804 1542", "L": "080242", "M": "0208254842",
    "N": "02084248", "O": "180703123243473818", "P": "02083847463505",
    "Q": "180703123243473818 2442", "R": "02083847463505 2542", "S": "473818070615354443321203",
    "T": "0848 2822", "U": "080312324348", "V": "082248", "W": "0812253248", "X": "0842 4802",
    "Y": "082548 2522", "Z": "08480242",
    "a": "06263532 341403122233", "b": "0802 0516263533221203", "c": "3526160503122233",
    "d": "3832 3526160503122233", "e": "04343526160503122233", "f": "281712 0626",
    "g": "3631201001 3526160503122233", "h": "0802 0516263532", "i": "0602 0808",
    "j": "161100 1818", "k": "0802 3604 1532", "l": "0802", "m": "0602 05162522 25364542",
    "n": "0602 0516263532", "o": "160503122233352616", "p": "0600 0516263533221203",
    "q": "3630 3526160503122233", "r": "0602 051626", "s": "3616051424332202",
    "t": "181322 0626", "u": "0603122233 3632", "v": "062246", "w": "0612243246", "x": "0632 3602",
    "y": "0622 4610", "z": "06360232",
    "0": "180703122233372818", "1": "071812", "2": "07182837360232",
    "3": "07182837362515 253433221203", "4": "22280434", "5": "3808052534332202",
    "6": "28180703122233342505", "7": "083812",
    "8": "180706152536372818 150403122233342515", "9": "12223337281807061535",
    ".": "0202", ",": "1201", ":": "0202 0505", ";": "1201 1515", "-": "0525", "_": "0141",
    "/": "0138", "\\": "0831", "(": "18060412", ")": "08161402", "[": "18080212", "]": "08181202",
    "%": "0258 0828260608 3454523234", "+": "0444 2622", "=": "0535 0333", "<": "360432",
    ">": "063402", "!": "0804 0202", "?": "07182837361413 1212", '"': "0806 2826", "'": "0806",
    "#": "1812 3832 0646 0444", "&": "42060718272604031222 2244", "*": "2723 0743 0347",
    "|": "0801", "·": "0505", "°": "0708181707", "…": "0202 2222 4242", "~": "05162536",
    "µ": "0600 0603122233 3632",
}  # fmt: skip
# Of what is not known: an empty box.
_UNKNOWN = "0838320208"
# Widths of a blank and of the gap between letters. Chosen by eye.
_SPACE, _GAP = 2.6, 1.7
# Height of a capital, in digits (from 2 to 8), and as a share of a text's size (chosen: about that
# of DejaVu Sans, 0.73); and on which digit a line of text stands.
_CAPITAL, _SHARE = 6, 0.74
BASE = 2


def unit(size: float) -> float:
    """Return how long one digit is in a text of a size (pixels)."""
    return size * _SHARE / _CAPITAL


@cache
def strokes(letter: str) -> tuple[Stroke, ...]:
    """Return the strokes of a letter; a blank has none."""
    if letter.isspace():
        return ()
    words = _STROKES.get(letter, _UNKNOWN).split()
    return tuple(
        tuple((int(x), int(y)) for x, y in zip(word[::2], word[1::2], strict=False))
        for word in words
    )


def advance(letter: str) -> float:
    """Return how far the next letter is away, in digits."""
    points = [x for stroke in strokes(letter) for x, _ in stroke]
    return max(points) + _GAP if points else _SPACE


def width(text: str, size: float) -> float:
    """Return how wide a text of a size is, in pixels."""
    if not text:
        return 0.0
    return unit(size) * (sum(map(advance, text)) - _GAP)
