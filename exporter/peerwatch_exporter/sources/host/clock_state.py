"""What the kernel says about its clock: whether a time service steers it, and how wrong it may be.

``adjtimex`` with no mode reads only and needs no privilege. It says the same under chrony, ntpd and
systemd-timesyncd, and none of them has to be asked.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

# <sys/timex.h>: bits of the status.
_UNSYNCHRONISED = 0x0040
_NANOSECONDS = 0x2000


@dataclass(frozen=True, slots=True)
class ClockState:
    """State of the kernel's clock; times in seconds.

    Parameters
    ----------
    is_synchronized
        Whether a time service keeps it right. The kernel takes it back by itself once nothing has
        corrected the clock for so long that it may be 16 s wrong.
    offset_seconds
        What is still being corrected: 0 under chrony, which steers by the frequency.
    max_error_seconds
        How wrong it may be at most; grows by half a millisecond per second without a correction.
    """

    is_synchronized: bool
    offset_seconds: float
    max_error_seconds: float


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        # More, up to 208 bytes, that is not needed here.
        ("rest", ctypes.c_byte * 256),
    )


def kernel_clock() -> ClockState:
    """Return the state of the kernel's clock.

    Raises
    ------
    OSError
        If it cannot be asked: EPERM where a seccomp profile forbids it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    timex = _Timex()
    if libc.adjtimex(ctypes.byref(timex)) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"adjtimex: {os.strerror(code)}")
    divisor = 1e9 if timex.status & _NANOSECONDS else 1e6
    return ClockState(
        is_synchronized=not timex.status & _UNSYNCHRONISED,
        offset_seconds=timex.offset / divisor,
        max_error_seconds=timex.maxerror / 1e6,
    )
