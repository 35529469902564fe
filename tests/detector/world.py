"""A detector on a fake Prometheus, with one job that may hold a fault."""

from __future__ import annotations

from dataclasses import dataclass

from detector.fakes import START, FakeClock, FakeReader, config_for, healthy, node_names
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.models.store import EMPTY
from peerwatch_detector.service.detector import Detector

# Second from which the faulty node deviates.
ONSET = 600


@dataclass
class World:
    """A fake Prometheus, its clock and a detector on it."""

    config: DetectorConfig
    clock: FakeClock
    reader: FakeReader
    detector: Detector

    def run(self, seconds: float, cycle: float = 15.0) -> None:
        """Let time pass, one cycle at its end of every ``cycle`` seconds."""
        for _ in range(round(seconds / cycle)):
            self.clock.advance(cycle)
            self.detector.cycle()
            self.reader.publish(self.detector.snapshot)

    def restart(self) -> None:
        """Forget all that a process forgets."""
        self.detector = Detector(self.config, self.reader, EMPTY, self.clock)

    def findings(self, job_id: str = "job-1") -> list[tuple[str, ...]]:
        return [
            (*finding.key, finding.since)
            for detection in self.detector.snapshot.detections
            if detection.job.job_id == job_id
            for finding in detection.findings
        ]


def world(
    config: DetectorConfig | None = None,
    *,
    nodes: int = 4,
    seconds: int = 4000,
    faulty: int | None = 1,
    end: int | None = None,
) -> World:
    config = config or config_for()
    values = healthy(nodes, seconds)
    if faulty is not None:
        values[faulty, ONSET:end] += 0.3
    clock = FakeClock()
    reader = FakeReader(clock, config)
    reader.add_job("job-1", {"load": values}, node_names(nodes), START)
    return World(config, clock, reader, Detector(config, reader, EMPTY, clock))
