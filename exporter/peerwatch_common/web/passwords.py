"""Basic authentication against bcrypt hashes, without letting passwords cost the node its CPU.

One check takes 50 ms and more, once per scrape would be far above the exporter's budget. So a
login that was right is remembered, one that was wrong too, and whatever is unknown is checked one
at a time: a flood of wrong passwords keeps a fraction of one CPU busy, and scrapers that had logged
in before do not wait behind it.
"""

from __future__ import annotations

import binascii
import hashlib
import os
import threading
import time
from collections import OrderedDict
from enum import Enum
from typing import TYPE_CHECKING

import bcrypt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Chosen: a scraper comes back long before; a person with a browser types again after that.
REMEMBER_SECONDS = 900.0
# A scraper with a wrong password asks every second: refused without a check for this long. Chosen:
# one check of 50 ms a minute is a thousandth of a CPU.
REMEMBER_WRONG_SECONDS = 60.0
# How long a login waits for others' checks before it is refused with a time to retry: half of what
# Prometheus waits by default.
WAIT_SECONDS = 5.0
# After a wrong password nothing is checked for so many times the check's duration: a quarter of a
# CPU at most.
REST_FACTOR = 3.0
# Chosen: far more than one program has scrapers and users.
_REMEMBERED = 512
# bcrypt takes no more; Go's, which made most of the hashes, leaves the rest out of account too.
_MAX_PASSWORD_BYTES = 72


class Verdict(Enum):
    """What is known of a login."""

    RIGHT = "right"
    WRONG = "wrong"
    BUSY = "busy"


class Logins:
    """Checks ``Authorization`` headers.

    Parameters
    ----------
    hashes
        bcrypt hash by user; at least one.
    monotonic, sleep
        Clock in seconds, and a way to wait.
    """

    def __init__(
        self,
        hashes: Mapping[str, str],
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._hashes = {user.encode(): value.encode() for user, value in hashes.items()}
        cost = max(int(value[4:6]) for value in hashes.values())
        # Checked for unknown users, so that the time does not tell who exists.
        self._nobody = f"$2b${cost:02}${'.' * 53}".encode()
        self._monotonic = monotonic
        self._sleep = sleep
        # Passwords stand in no table: only their hash under a key that dies with the process.
        self._key = os.urandom(32)
        self._right = _Memory(REMEMBER_SECONDS)
        self._wrong = _Memory(REMEMBER_WRONG_SECONDS)
        self._checking = threading.Lock()

    def check(self, header: str) -> Verdict:
        """Return whether an ``Authorization`` header names a user and the right password."""
        login = _decode(header)
        if login is None:
            return Verdict.WRONG
        user, password = login
        digest = hashlib.blake2b(user + b"\0" + password, key=self._key).digest()
        known = self._known(digest)
        if known is not None:
            return known
        if not self._checking.acquire(timeout=WAIT_SECONDS):
            return Verdict.BUSY
        try:
            # Another connection may have asked the same while this one waited.
            return self._known(digest) or self._check(user, password, digest)
        finally:
            self._checking.release()

    def _known(self, digest: bytes) -> Verdict | None:
        now = self._monotonic()
        if self._right.has(digest, now):
            # Renewed by use: a scraper that keeps coming is never checked again.
            self._right.add(digest, now)
            return Verdict.RIGHT
        return Verdict.WRONG if self._wrong.has(digest, now) else None

    def _check(self, user: bytes, password: bytes, digest: bytes) -> Verdict:
        expected = self._hashes.get(user, self._nobody)
        before = self._monotonic()
        matches = bcrypt.checkpw(password[:_MAX_PASSWORD_BYTES], expected)
        right = matches and user in self._hashes
        now = self._monotonic()
        if right:
            self._right.add(digest, now)
            return Verdict.RIGHT
        self._wrong.add(digest, now)
        self._sleep(REST_FACTOR * (now - before))
        return Verdict.WRONG


class _Memory:
    """Digests with the time they were added; the oldest go first when there are too many."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._added: OrderedDict[bytes, float] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, digest: bytes, now: float) -> None:
        with self._lock:
            self._added.pop(digest, None)
            self._added[digest] = now
            while len(self._added) > _REMEMBERED:
                self._added.popitem(last=False)

    def has(self, digest: bytes, now: float) -> bool:
        with self._lock:
            added = self._added.get(digest)
        return added is not None and now - added < self._seconds


def _decode(header: str) -> tuple[bytes, bytes] | None:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        decoded = binascii.a2b_base64(encoded.strip().encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    user, colon, password = decoded.partition(b":")
    # bcrypt ends a password at a zero byte: what comes behind it would not count.
    if not colon or b"\0" in password:
        return None
    return user, password
