"""One cycle of one training job, from its samples to what is published of it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from peerwatch_detector.detection.job_detector import Detection, JobDetector
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.jobs import Job


@dataclass(frozen=True, slots=True)
class Samples:
    """What was read of a job.

    Parameters
    ----------
    frames
        By metric.
    now
        Unix time to evaluate at, for absence and for the findings' ``raised``.
    complete
        Whether these are all metrics, and not some of a large job's first read.
    """

    frames: Mapping[str, JobFrame]
    now: float
    complete: bool = True


class Turn(Protocol):
    """Where a cycle of a job gets its samples from, and what becomes of its detection."""

    @property
    def job(self) -> Job:
        """The job as discovered."""

    def read(self) -> Samples:
        """Read what comes next of the job; may wait for a server."""

    def restore(self, samples: Samples) -> None:
        """Let stand what was published before this process first evaluated the job."""

    def publish(self, detection: Detection, samples: Samples, /) -> None:
        """Take over what the cycle found in the samples read last."""


Cycle = Generator[Callable[[], Samples], Samples, None]


def cycle(detector: JobDetector, turn: Turn) -> Cycle:
    """Run one cycle of one job: read, preprocess, detect, explain, publish.

    Reading waits for a server, and whoever runs a cycle chooses the thread that does: yielded is
    what reads, and what it returned is to be sent. A large job's first samples come in parts, each
    of which is compared before the next one is read.

    Parameters
    ----------
    detector
        What is remembered of the job.
    turn
        Where samples come from, and the detection goes.
    """
    job = turn.job
    while True:
        samples = yield turn.read
        turn.restore(samples)
        frames = detector.preprocess(samples.frames)
        if samples.complete:
            break
        detector.method.compare(job, frames)
        # Or a part would take memory until the next one has been read.
        del samples, frames
    detected = detector.detect(job, frames, samples.now)
    detector.explain(job, frames, detected)
    turn.publish(detector.detection(job, detected), samples)


def evaluate(
    detector: JobDetector, job: Job, frames: Mapping[str, JobFrame], now: float
) -> Detection:
    """Run a cycle on samples that are at hand, as a backtest has them, and return what it found.

    Parameters
    ----------
    detector, job
        As for ``cycle``.
    frames, now
        As ``Samples`` has them.
    """
    turn = _AtHand(job, Samples(frames, now))
    running = cycle(detector, turn)
    read = next(running)
    with suppress(StopIteration):
        running.send(read())
    return turn.published[0]


@dataclass(frozen=True, slots=True)
class _AtHand:
    """A turn whose samples are in memory, and whose detection is kept."""

    job: Job
    samples: Samples
    published: list[Detection] = field(default_factory=list)

    def read(self) -> Samples:
        return self.samples

    def restore(self, samples: Samples) -> None:
        """Nothing was published before."""

    def publish(self, detection: Detection, _samples: Samples, /) -> None:
        self.published.append(detection)
