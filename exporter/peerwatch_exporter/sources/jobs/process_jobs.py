"""Which job each rank belongs to, as far as the jobs collector found out; the ranks' reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class ProcessJobs:
    """The job of each process of which one is known; safe for any number of threads."""

    def __init__(self) -> None:
        self._jobs: Mapping[int, str] = {}

    def update(self, jobs: Mapping[int, str]) -> None:
        """Replace what is known: job ids by pid, which nobody changes any more."""
        self._jobs = jobs

    def job_id(self, pid: int | None) -> str:
        """Return the job of a process; empty if none is known."""
        return "" if pid is None else self._jobs.get(pid, "")
