"""What jobs fail of, asked only about those that something stands against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from peerwatch_detector.diagnosis.diagnoser import Samples
from peerwatch_detector.diagnosis.root.live.queries import HAS_EVIDENCE
from peerwatch_detector.diagnosis.root.live.root import LiveRoot, ask_root
from peerwatch_detector.errors import ReadError, ReadFailure
from peerwatch_detector.frame import Series
from peerwatch_detector.reading import promql
from peerwatch_detector.reading.instant_reader import Instants
from peerwatch_detector.service.change_log import FailureLog
from peerwatch_detector.service.job_memory import JobMemory
from peerwatch_detector.service.own_answers import own_answers
from peerwatch_detector.service.workers import Outcome


class JobRoots:
    """Asks what each job fails of; what is found is kept with the job.

    Parameters
    ----------
    instants
        Where it is read: a reader of its own, so that nothing else waits for these queries.
    clock
        Unix time in seconds.
    """

    def __init__(self, instants: Instants, clock: Callable[[], float]) -> None:
        self._instants = instants
        self._clock = clock

    @property
    def errors(self) -> Mapping[ReadFailure, int]:
        """Failed requests so far, by reason."""
        return self._instants.errors

    def asking(self, memory: JobMemory) -> Callable[[], LiveRoot | None]:
        """Return the work of asking about a job: for any thread, as long as no other has it."""
        memory.begin_root()
        now = self._clock()
        return partial(
            self._ask, memory.evidence.job_id, memory.suffers, own_answers(memory, now), now
        )

    def take(
        self, memory: JobMemory | None, outcome: Outcome[LiveRoot | None], log: FailureLog
    ) -> None:
        """Take in what was found; without an answer all stands as it stood.

        Parameters
        ----------
        memory
            Of the job that was asked about; None if it has ended in the meantime.
        outcome
            What was found: None if nothing stands against the job any more.
        log
            Where failures begin and end.
        """
        if memory is None:
            return
        log.report(("job", memory.evidence.job_id, "root"), outcome.error)
        # Without an answer, too: a finding must not wait for a server that says nothing.
        memory.end_root()
        if outcome.error is None:
            memory.evidence.root = outcome.result

    def _ask(self, job_id: str, suffers: bool, own: Samples, now: float) -> LiveRoot | None:
        if not suffers and not self._answer(promql.job_query(HAS_EVIDENCE, job_id)):
            return None
        return ask_root(self._answer, job_id, now, own=own)

    def _answer(self, query: str) -> list[Series]:
        found = self._instants.read({query: query})[query]
        if isinstance(found, ReadError):
            raise found
        return found
