"""Waiting for what other processes do."""

from __future__ import annotations

import time
from pathlib import Path


def gone(pid: int, seconds: float = 300.0) -> bool:
    """Say whether a process ends (or is a zombie nobody has reaped) in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False
