"""The traffic of a training job, second by second, as the detector reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.diagnosis.traffic.job_traffic import JobTraffic
from peerwatch_detector.diagnosis.traffic.watch import Doing, TrafficWatch
from peerwatch_detector.frame import JobFrame

START = 1_700_000_000
CYCLE = 15
USUAL = 2e9


@dataclass
class Layout:
    """A job.

    Parameters
    ----------
    nodes, seconds
        How many, and how long it runs.
    period, jitter, drift
        Of its steps: seconds, the share that each varies by, and that it changes by in all.
    duty
        Share of a step in which nodes send.
    rate_seconds
        What a sample is a rate over.
    scrape_seconds
        Time from one known sample to the next.
    """

    nodes: int = 8
    seconds: int = 2400
    period: float = 10.0
    jitter: float = 0.03
    drift: float = 0.0
    duty: float = 0.4
    rate_seconds: int = 1
    scrape_seconds: int = 1
    seed: int = 20_000
    pauses: tuple[tuple[int, int], ...] = ()
    rates: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        random = np.random.default_rng(self.seed)
        fine = 10
        sending = np.zeros(self.seconds * fine)
        time = 0.0
        while time < self.seconds:
            drifted = self.period * (1 + self.drift * time / self.seconds)
            step = max(0.3, drifted * (1 + self.jitter * random.standard_normal()))
            begins = time + (1 - self.duty) * step
            sending[round(begins * fine) : round((time + step) * fine)] = 1
            time += step
        sent = sending.reshape(self.seconds, fine).mean(axis=1)
        own = random.uniform(0.8, 1.25, self.nodes)[:, None]
        noise = random.normal(1, 0.05, (self.nodes, self.seconds)).clip(0.5, 1.5)
        self.rates = USUAL / self.duty * own * noise * sent
        for begin, end in self.pauses:
            self.rates[:, begin:end] = 1e4

    def observed(self) -> NDArray[np.float32]:
        """Return the rates over the window, of each scrape."""
        total = np.cumsum(np.pad(self.rates, ((0, 0), (self.rate_seconds, 0))), axis=1)
        seen = (total[:, self.rate_seconds :] - total[:, : -self.rate_seconds]) / self.rate_seconds
        seen[:, np.arange(self.seconds) % self.scrape_seconds != 0] = np.nan
        return seen.astype(np.float32)


@dataclass
class Watched:
    """What the watch said, cycle by cycle."""

    layout: Layout
    said: list[tuple[int, JobTraffic | None]]

    @property
    def last(self) -> JobTraffic:
        traffic = self.said[-1][1]
        assert traffic is not None
        return traffic

    def first(self, state: str) -> int | None:
        """Return after how many seconds the job was first said to be in a state."""
        return next((at for at, each in self.said if each and each.state == state), None)

    @property
    def states(self) -> set[str]:
        return {each.state for _, each in self.said if each}

    @property
    def named(self) -> set[tuple[str, str]]:
        found = (node for _, each in self.said if each for node in each.nodes)
        return {(each.node, each.state) for each in found}


def watch(
    layout: Layout,
    values: NDArray[np.float32] | None = None,
    doing: Doing | None = None,
    metric: str = "tcp_rdma_throughput",
    step: float = 1.0,
) -> Watched:
    """Let a watch see a job in cycles, each with some samples that it has seen before."""
    seen = layout.observed() if values is None else values
    names = tuple(f"n{number:03}" for number in range(layout.nodes))
    watching = TrafficWatch(step, layout.rate_seconds, 110.0)
    said = []
    for end in range(CYCLE, layout.seconds + 1, CYCLE):
        begin = max(0, end - CYCLE - 30)
        times = START + np.arange(begin, end, dtype=np.float64)
        frame = JobFrame("j", metric, names, times, seen[:, begin:end])
        said.append((end, watching.update({metric: frame}, doing or Doing())))
    return Watched(layout, said)
