"""How the kernel writes where a filesystem is mounted."""

from __future__ import annotations

import re

# proc(5): octal escapes of blank, tab, newline and backslash.
_ESCAPE = re.compile(r"\\([0-7]{3})")


def unescaped(text: str) -> str:
    """Return a path of ``/proc/PID/mountinfo`` as it is."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
