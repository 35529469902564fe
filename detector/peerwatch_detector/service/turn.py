"""A job's turn: samples are read from a server, and what they show is kept for endpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.findings import EVIDENCE, Finding
from peerwatch_detector.detection.job_detector import Detection
from peerwatch_detector.detection.pipeline import Samples, cycle
from peerwatch_detector.errors import ReadError
from peerwatch_detector.jobs import Job
from peerwatch_detector.reading.job_reader import JobReading
from peerwatch_detector.reading.reader import Reader
from peerwatch_detector.service.change_log import log_changes
from peerwatch_detector.service.job_memory import JobMemory
from peerwatch_detector.service.restore import (
    distrust,
    published_findings,
    published_step_rate,
    restore,
)


class JobTurn:
    """One cycle of one job: read in any thread, one part at a time; all else in the loop's.

    Parameters
    ----------
    job
        The job as it was last discovered.
    memory
        What is held of it.
    discovered
        Unix time of that discovery.
    config, reader, clock
        The detector's.
    diagnoses
        Whether the job's own evidence is read, so that its published findings can be gone on with.
    """

    def __init__(
        self,
        job: Job,
        memory: JobMemory,
        discovered: float,
        config: DetectorConfig,
        reader: Reader,
        clock: Callable[[], float],
        *,
        diagnoses: bool,
    ) -> None:
        self.job, self.memory = job, memory
        self.errors: Mapping[str, ReadError | None] = {}
        self.seconds: Mapping[str, float] = {}
        self._discovered = discovered
        self._config, self._reader, self._clock = config, reader, clock
        self._diagnoses = diagnoses
        self._read_at = 0.0
        self._readings: Iterator[JobReading] | None = None
        self._published: tuple[Finding, ...] = ()
        self._step_rate: tuple[tuple[str, float], ...] = ()
        self._before: dict[str, Finding] = {}
        self._cycle = cycle(memory.detector, self)
        next(self._cycle)

    def reading(self) -> Reading:
        """Read what comes next of the job; for any thread, as long as no other does.

        Raises
        ------
        ReadError
            If the job cannot be evaluated for it.
        """
        try:
            return Reading(self, self.read())
        except Exception:
            self.close()
            raise

    def go_on(self, samples: Samples) -> bool:
        """Evaluate what was read, and return whether there is more to read."""
        try:
            self._cycle.send(samples)
        except StopIteration:
            return False
        return True

    def close(self) -> None:
        """Give up: nothing more can be read."""
        # What waits for samples refers to this turn, and would keep the job's memory.
        self._cycle.close()

    def read(self) -> Samples:
        """Read all of the job, or the next part of a large job's first samples."""
        memory = self.memory
        begins = self._readings is None
        if self._readings is None:
            self._read_at = self._clock()
            needed_from = memory.detector.method.needed_from
            self._readings = memory.reader.readings(self.job.nodes, self._read_at, needed_from)
        reading = next(self._readings)
        self.errors = reading.errors
        error = reading.job_error if reading.complete else reading.server_error
        if error is not None:
            raise error
        if begins and not memory.restored:
            self._read_published()
        # Nobody is absent for longer than the discovery is old.
        now = self._discovered if self.job.absent_since else self._read_at
        return Samples(reading.frames, now, reading.complete)

    def _read_published(self) -> None:
        """Read what was published of the job before this process began with it."""
        config, published = self._config, self.memory.carried
        if published is None:
            published = published_findings(self._reader, self.job, config.detection_metrics())
        self._published = published
        if config.progress_counters():
            self._step_rate = published_step_rate(self._reader, self.job)

    def restore(self, samples: Samples) -> None:
        """Let stand what was published before this process first evaluated the job."""
        memory, detector = self.memory, self.memory.detector
        if not memory.restored:
            found = self._published
            restore([each for each in found if each.method != EVIDENCE], detector.state)
            if self._diagnoses:
                named = [each for each in found if each.method == EVIDENCE]
                memory.evidence.findings.restore(named, self._clock())
            for counter, usual in self._step_rate:
                detector.method.restore_step_rate(counter, usual)
            memory.restored = True
        elif samples.complete:
            # Each part's past was seen to before; what is left of the samples is the newest.
            self._published = ()
        distrust(self._published, detector.method, samples.frames, self._config.resolution_seconds)
        self._before = dict(detector.state.standing)

    def publish(self, detection: Detection, samples: Samples, /) -> None:
        """Keep what was found for the endpoints, and log what changed."""
        memory = self.memory
        memory.detection, memory.last_success = detection, self._read_at
        memory.watch_traffic(samples.frames, detection)
        after = {finding.node: finding for finding in detection.findings}
        log_changes(self._before, after, detection.explanations)


@dataclass(frozen=True, slots=True)
class Reading:
    """A job's new samples, on their way to be evaluated.

    Parameters
    ----------
    turn
        The job's.
    samples
        Of all metrics, or of some.
    """

    turn: JobTurn
    samples: Samples
