"""Ends driver processes and waits for their end without ever blocking."""

from __future__ import annotations

import logging
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerwatch_exporter.driver.child import ChildProcess

_LOG = logging.getLogger(__name__)
# Processes of one role that SIGKILL does not end, before no new one is started. Chosen: one may be
# an accident; after three the driver is what hangs, and each more only takes memory.
MOST_UNKILLABLE = 3
# What SIGKILL ends is gone within milliseconds.
_POLL_SECONDS = 0.01


@dataclass(slots=True)
class _KilledProcess:
    child: ChildProcess
    gpu: int | None
    killed_at: float
    is_unkillable: bool = False


class Reaper:
    """Reaps the processes that were killed and are not gone.

    A process in uninterruptible sleep in the driver does not end before its call returns, which
    may be never. It is left behind and checked again.

    Parameters
    ----------
    patience
        Seconds after which a killed process is called unkillable.
    kill
        Sends SIGKILL to a process id.
    """

    def __init__(self, patience: float, kill: Callable[[int, int], None]) -> None:
        self._patience = patience
        self._kill = kill
        self._killed: list[_KilledProcess] = []

    def reap(self, child: ChildProcess, gpu: int | None, now: float) -> None:
        """Kill a process; ``gpu`` is the one it was for, None for the main one."""
        if child.process.poll() is None:
            self._kill(child.process.pid, signal.SIGKILL)
        child.close()
        self._killed.append(_KilledProcess(child, gpu, now))

    def poll(self, now: float) -> None:
        """Take note of those that have ended, and of those that do not."""
        for killed in list(self._killed):
            if killed.child.process.poll() is not None:
                self._killed.remove(killed)
                if killed.is_unkillable:
                    _LOG.info("driver process ended at last pid=%d", killed.child.process.pid)
            elif not killed.is_unkillable and now - killed.killed_at >= self._patience:
                killed.is_unkillable = True
                _LOG.error(
                    "driver process cannot be killed, it is stuck in the driver pid=%d gpu=%s",
                    killed.child.process.pid,
                    "all" if killed.gpu is None else killed.gpu,
                )

    def wait(self, monotonic: Callable[[], float]) -> None:
        """Wait until all are gone, for as long as the patience lasts."""
        end = monotonic() + self._patience
        while self._killed and monotonic() < end:
            self.poll(monotonic())
            time.sleep(_POLL_SECONDS)

    def unkillable(self) -> int:
        """Return how many processes were left behind."""
        return sum(killed.is_unkillable for killed in self._killed)

    def may_start(self, gpu: int | None) -> bool:
        """Return whether a role has left few enough processes behind to get a new one."""
        stuck = sum(killed.is_unkillable for killed in self._killed if killed.gpu == gpu)
        return stuck < MOST_UNKILLABLE
