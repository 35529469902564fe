"""What one failure has in common over attempts, whatever numbers and places it is told with."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peerwatch_responder.retry.evidence.occurrence import Occurrence

_ADDRESS = re.compile(
    rb"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?\b|\[?[0-9a-fA-F]*:[0-9a-fA-F:]{4,}\]?"
)
_HEX = re.compile(rb"\b(?:0x[0-9a-fA-F]+|(?=[0-9a-f]*\d)[0-9a-f]{6,})\b")
# Of a path the last name stays: which file was missing is what failed.
_FOLDERS = re.compile(rb"(?:/[\w.@+-]+)+/(?=[\w.@+-])")
_NUMBER = re.compile(rb"\d+")
# As much as is quoted of a line (redact.LONGEST); with another number known failures would be new.
_CHARACTERS = 300


def fingerprint(root: Occurrence) -> str:
    """Return 16 hexadecimal digits that are the same for the same failure.

    Of a symptom that any rank may show only the kind counts: whom it complains about is chance.
    """
    text = b"" if root.event_class == "D" else normalized(root.text)
    return hashlib.sha256(root.signature.encode() + b"\0" + text).hexdigest()[:16]


def normalized(text: bytes) -> bytes:
    """Return a line without numbers, addresses, and folders of paths."""
    text = _ADDRESS.sub(b"<address>", text)
    text = _HEX.sub(b"<hex>", text)
    text = _FOLDERS.sub(b"<path>/", text)
    text = _NUMBER.sub(b"<n>", text)
    return b" ".join(text.split())[:_CHARACTERS]
