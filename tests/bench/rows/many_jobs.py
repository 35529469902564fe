"""200 jobs of 64 nodes in one detector: a cycle, without reading. Only with ``--large``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from bench.measurement import Goal, Measurement, alone
from bench.shares import RunningJobs

_JOBS, _NODES, _CYCLES = 200, 64, 4


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Yield CPU seconds; the samples are made up in the server's place, which does not count."""
    if not options.large:
        return
    running = RunningJobs({f"job-{number}": _NODES for number in range(_JOBS)})
    first = running.cycle()
    cycles = [running.cycle() for _ in range(_CYCLES)]
    found = running.detector.snapshot.detections
    if len(found) != _JOBS or min(len(each.job.nodes) for each in found) != _NODES:
        raise RuntimeError(f"{len(found)} of {_JOBS} jobs were evaluated")
    what = f"detector, {_JOBS} jobs x {_NODES} nodes, without reading"
    yield Measurement(f"{what}: first calls", "s CPU", first)
    goals = (Goal(3),)
    yield Measurement(f"{what}: a cycle", "s CPU", float(np.median(cycles)), goals=goals)


if __name__ == "__main__":
    alone(measurements)
