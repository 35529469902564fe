"""Whether a failed job is started again, by different policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from peerwatch_responder.retry.answer import RETRIES
from peerwatch_responder.retry.assessment.assess import Sources, assess
from peerwatch_responder.retry.evidence.observed import observe
from peerwatch_responder.retry.history.recurrence import Recurrence, recurrence
from peerwatch_responder.retry.history.row import HistoryRow
from peerwatch_responder.retry.reading.facts import JobFacts
from peerwatch_responder.retry.reading.log_text import LogText

if TYPE_CHECKING:
    from peerwatch_demo.retries.failed_job import FailedJob
    from peerwatch_responder.retry.assessment.knowledge import Knowledge
    from peerwatch_responder.retry.opinion import RetryModel

# Whether to start a job again after so many attempts.
Policy = Callable[["FailedJob", int], bool]
# Any will do that is the same every time.
_NOW = 1_800_000_000.0


def always(_job: FailedJob, _attempts: int) -> bool:
    """Start it again whatever it failed of, up to the most retries that there are."""
    return True


def never(_job: FailedJob, _attempts: int) -> bool:
    """Never start it again."""
    return False


def knowing(job: FailedJob, _attempts: int) -> bool:
    """Start again whatever can succeed, and nothing else: the bound that no log can reach."""
    return job.transient


class Advised:
    """Starts a job again if it is advised, by its log and by what its attempts did before.

    Parameters
    ----------
    knowledge
        What is known beforehand.
    model
        The learnt model; None: there is none.
    """

    def __init__(self, knowledge: Knowledge, model: RetryModel | None = None) -> None:
        self._knowledge = knowledge
        self._model = model
        self._rows: dict[str, list[HistoryRow]] = {}

    def __call__(self, job: FailedJob, attempts: int) -> bool:
        """Return whether the job is started again after so many attempts; asking is no start."""
        rows = self._rows.setdefault(job.name, [])
        attempt = str(attempts)
        log = LogText(f"{job.name}.log", job.attempts[attempts - 1].log.encode())
        observed = observe([log], self._knowledge.table, clock=lambda: _NOW)
        facts = JobFacts(job=job.name, attempt=attempt, exit_code=1)

        def remember(fingerprint: str, step: int | None) -> Recurrence:
            return recurrence(rows, job.name, attempt, fingerprint, step)

        found = assess(observed, facts, self._knowledge, Sources(remember, model=self._model))
        rows.append(
            HistoryRow(
                *("advice", _NOW, "", job.name, attempt, found.fingerprint),
                *(found.kind, found.reason, found.step),
            )
        )
        return found.kind in RETRIES
