"""Our mark in the reason of a drained node."""

from __future__ import annotations

import re

_MARK = re.compile(r"peerwatch: .* action=([0-9a-f]{16})")


def key_of(reason: str) -> str | None:
    """Return the key of the response that has drained a node, by its reason; None: not ours."""
    found = _MARK.fullmatch(reason)
    return found[1] if found else None
