"""The words of a line: its template, without paths, numbers, hexadecimal and stop words.

``FileNotFoundError: [Errno 2] No such file or directory: '/data/x'`` has the words file, not,
found, error, errno2, no, such, file, directory, path: names are split where their case changes, so
that an exception that was never seen still has words that were. Of numbers only those remain that
are names of errors: they follow errno, status, signal, exit code or xid.
"""

from __future__ import annotations

import re

_CODE = re.compile(
    r"\b(errno|xid|sxid|signal|status|exitcode|exit code|error code|http|client error|server error)"
    r"\b[ :=#()\[\]'\"-]{0,4}(?:\(PCI:[0-9a-f:.]+\): ?)?(-?\d{1,5})\b",
    re.IGNORECASE,
)
_STATUS = re.compile(r"\b([45]\d\d)(?= (?:Client|Server) Error)")
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,10}://\S+")
_PATH = re.compile(r"(?<![\w/])[~.]{0,2}(?:/[\w.+@=*<>-]+)+/?|\b[\w.-]+(?:/[\w.+@=-]+){2,}")
_HEXADECIMAL = re.compile(r"\b0x[0-9a-f]+\b|\b(?=[0-9a-f]*\d)[0-9a-f]{7,}\b", re.IGNORECASE)
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# Chosen: hardly a word of a language is longer; keys and hashes are.
_LONGEST_WORD = 20

_STOP = """
a an and any are as at be been being but by can did do does
for from had has have he her his how if in into is it its itself
may me might more most my of on onto or our own per s so some
t than that the their them then there these they this those to too was we
were what when where which while who will with would you your
"""
STOP_WORDS = frozenset(_STOP.split())


def words_of(line: str) -> list[str]:
    """Return the words of a line, in lower case and in order."""
    codes = [f"{_name(kind)}{number}" for kind, number in _CODE.findall(line)]
    codes += [f"http{number}" for number in _STATUS.findall(line)]
    line = _URL.sub(" url ", line)
    line = _PATH.sub(" path ", line)
    line = _HEXADECIMAL.sub(" ", line)
    words = [part.lower() for part in _PART.findall(line)]
    kept = [each for each in words if 1 < len(each) <= _LONGEST_WORD and each not in STOP_WORDS]
    return kept + codes


def _name(kind: str) -> str:
    """Return the word that a code's number is written behind."""
    kind = kind.lower().replace(" ", "")
    return {"clienterror": "http", "servererror": "http", "exitcode": "exit"}.get(kind, kind)
