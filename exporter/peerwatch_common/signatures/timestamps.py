"""Times that lines of logs begin with, as Unix times."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_ISO = re.compile(
    rb"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
    rb"(?: ?(Z|[+-]\d\d:?\d\d)(?![\d:]))?"
)
# Python's default for files without a year first, as in "05/01/2024 12:00:00".
_US = re.compile(rb"\b(\d\d)/(\d\d)/(\d{4})[ ,]{1,2}(\d\d):(\d\d):(\d\d)")
# "May  1 12:00:00" of syslog, "Wed May  1 12:00:00 2024" of dmesg -T and ctime.
_NAMED = re.compile(rb"\b([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d)(?: (\d{4})\b)?")
# "E0501 12:00:00.123456" of glog, which torch's C++ writes.
_GLOG = re.compile(rb"\b[IWEFV](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,9})")
# Where in a line a time is looked for: chosen, behind the prefixes of a collector and a launcher.
_HEAD = 160
_DAY = 86_400.0


def timestamp_of(text: bytes, now: float) -> float | None:
    """Return the first time in the head of a line (Unix time), None if there is none.

    Times without a zone are in the node's own, as programs write them. Of times without a year
    the year is the one in which they are not more than a day ahead of now.
    """
    head = text[:_HEAD]
    if b":" not in head:
        return None
    try:
        return _iso(head) or _us(head) or _named(head, now) or _glog(head, now)
    except (ValueError, OverflowError, OSError):
        # Digits that look like a time and are none, such as those of month 13.
        return None


def _iso(head: bytes) -> float | None:
    found = _ISO.search(head)
    if found is None:
        return None
    numbers = [int(part) for part in found.groups()[:6]]
    zone = _zone(found[8])
    return _unix(*numbers, fraction=found[7], zone=zone)


def _us(head: bytes) -> float | None:
    found = _US.search(head)
    if found is None:
        return None
    month, day, year, hour, minute, second = (int(part) for part in found.groups())
    return _unix(year, month, day, hour, minute, second)


def _named(head: bytes, now: float) -> float | None:
    found = _NAMED.search(head)
    if found is None:
        return None
    name = found[1].decode().lower()
    if name not in _MONTHS:
        return None
    day, hour, minute, second = (int(found[group]) for group in range(2, 6))
    month = _MONTHS.index(name) + 1
    if found[6]:
        return _unix(int(found[6]), month, day, hour, minute, second)
    return _without_year(now, month, day, hour, minute, second)


def _glog(head: bytes, now: float) -> float | None:
    found = _GLOG.search(head)
    if found is None:
        return None
    numbers = [int(part) for part in found.groups()[:5]]
    return _without_year(now, *numbers, fraction=found[6])


def _without_year(now: float, *numbers: int, fraction: bytes | None = None) -> float:
    year = datetime.fromtimestamp(now, tz=UTC).year
    for candidate in (year + 1, year):
        try:
            time = _unix(candidate, *numbers, fraction=fraction)
        except ValueError:  # 29 February
            continue
        if time <= now + _DAY:
            return time
    return _unix(year - 1, *numbers, fraction=fraction)


def _unix(*numbers: int, fraction: bytes | None = None, zone: timezone | None = None) -> float:
    year, month, day, hour, minute, second = numbers
    # A leap second is the last one of its minute.
    moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=zone)
    seconds = moment.timestamp()
    return seconds + (float(b"0." + fraction) if fraction else 0.0)


def _zone(text: bytes | None) -> timezone | None:
    if text is None:
        return None
    if text == b"Z":
        return UTC
    digits = text[1:].replace(b":", b"")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[:1] == b"-" else offset)
