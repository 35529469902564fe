"""What a diagnoser is: it asks for present values of a job's series, and says what they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from peerwatch_detector.diagnosis.verdict import Verdict
from peerwatch_detector.frame import Series

# The answers to a diagnoser's queries, by name: series with one sample each.
Samples = Mapping[str, Sequence[Series]]


class Diagnoser(Protocol):
    """Diagnoses one job, moment after moment, and owns what it remembers of it in between.

    It is a function of samples and time: it reads nothing itself, and is called in one thread at a
    time. After a restart of the detector it begins with an empty memory.

    Parameters
    ----------
    job_id
        The scheduler's id of the job.
    """

    name: ClassVar[str]
    """What it is called in logs and errors; also the first part of a setting's name."""

    queries: ClassVar[Mapping[str, str]]
    """PromQL by name, instant, with ``{{ job }}`` for the matcher of the job's id.

    Queries of several diagnosers that read the same are asked once.
    """

    def __init__(self, job_id: str) -> None: ...

    def diagnose(self, samples: Samples, now: float) -> Sequence[Verdict]:
        """Return what stands now; what is not returned any more has ended.

        Parameters
        ----------
        samples
            The answers to ``queries``; what nobody publishes is an empty sequence.
        now
            Unix time at which the server evaluated them, on its clock.
        """
