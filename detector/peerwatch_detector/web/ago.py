"""Times as a person reads them."""

from __future__ import annotations

from datetime import UTC, datetime


def ago(seconds: float) -> str:
    """Return how long ago something was, such as "12 s ago"."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s ago"
    return f"{whole // 60} min ago" if whole < 7200 else f"{whole // 3600} h ago"


def clock(time: float) -> str:
    """Return the time of day of a Unix time, in UTC."""
    return datetime.fromtimestamp(time, UTC).strftime("%H:%M:%S")


def date(time: float) -> str:
    """Return a Unix time as date and time of day, in UTC."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
