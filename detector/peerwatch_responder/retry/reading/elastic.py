"""Reads the error files of torchelastic, which a rank writes in its last moment.

``TORCHELASTIC_ERROR_FILE`` names it: JSON with the exception, its traceback and its time.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

# A traceback, and what surrounds it. Chosen: thousands of frames.
MOST_BYTES = 1 << 20


def as_log(content: bytes) -> bytes | None:
    """Return what an error file says as lines of a log with their time; None: it is none.

    Parameters
    ----------
    content
        Of the file. One that was cut off in the middle is none.
    """
    if content.lstrip()[:1] != b"{":
        return None
    try:
        record: Any = json.loads(content)
    except (ValueError, RecursionError):
        return None
    message = record.get("message") if isinstance(record, dict) else None
    extra: dict[str, Any] = {}
    if isinstance(message, dict):
        more = message.get("extraInfo")
        extra = more if isinstance(more, dict) else {}
        message = message.get("message")
    if not isinstance(message, str):
        return None
    stack = extra.get("py_callstack")
    lines = stack.splitlines() if isinstance(stack, str) and stack.strip() else []
    if not any(line.strip() == message.splitlines()[0].strip() for line in lines if message):
        # Without its traceback an exception is only a text.
        lines = [*lines, "Traceback (most recent call last):", message]
    prefix = _time(extra.get("timestamp"))
    return "".join(f"{prefix}{line}\n" for line in lines).encode("utf-8", "replace")


def _time(seconds: object) -> str:
    try:
        moment = datetime.fromtimestamp(float(str(seconds)), tz=UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ ")
