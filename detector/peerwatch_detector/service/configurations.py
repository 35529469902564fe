"""How the nodes of each job are set up: read rarely, apart from cycles and other evidence."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from peerwatch_detector.diagnosis.config.watch import ConfigState, read_state
from peerwatch_detector.reading.instant_reader import Instants
from peerwatch_detector.service.change_log import FailureLog
from peerwatch_detector.service.workers import Outcome


class JobConfigurations:
    """What is known of how each job's nodes are set up; in one thread, but for the reading.

    Parameters
    ----------
    instants
        Where it is read: a reader of its own, since these queries take longer than others.
    clock
        Unix time in seconds.
    """

    def __init__(self, instants: Instants, clock: Callable[[], float]) -> None:
        self._instants = instants
        self._clock = clock
        self._states: dict[str, ConfigState] = {}
        self.failures = 0

    def asking(self, job_id: str) -> Callable[[], ConfigState]:
        """Return the work of reading one job: for any thread, as long as no other has it."""
        before = self._states.get(job_id)
        return partial(self._read, job_id, before)

    def take(self, job_id: str, outcome: Outcome[ConfigState], log: FailureLog) -> None:
        """Take in what was read; without an answer all stands as it stood."""
        log.report(("job", job_id, "configuration"), outcome.error)
        if outcome.result is not None:
            self._states[job_id] = outcome.result
        else:
            self.failures += 1

    def states(self, jobs: Collection[str]) -> dict[str, ConfigState]:
        """Return what is known of these jobs, and forget all others."""
        self._states = {job: state for job, state in self._states.items() if job in jobs}
        return dict(self._states)

    def _read(self, job_id: str, before: ConfigState | None) -> ConfigState:
        return read_state(self._instants, job_id, before, self._clock())
