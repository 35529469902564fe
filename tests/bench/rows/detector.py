"""The detector on a real Prometheus: reading a job, a first call, a cycle; beside the plain pull.

The plain pull is ``requests`` and ``json`` with a loop over the samples, of as many series and
samples. It only reads; what a first call adds is evaluation.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import detector, reading
from bench.measurement import Goal, Measurement, alone

_NODES, _METRICS, _SECONDS = 1500, 10, 900
# The least disturbed counts, as in reading: a server that was just filled is still at work.
_RUNS = 3
_PLAIN = "requests + json, only reading"
# CPU seconds of a cycle, wall seconds of a first call, MiB.
_GOALS = {1500: (0.10, 1.0, None), 12_500: (1.5, 8.0, 1024.0)}


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Yield reading at 1,500 nodes, and the detector at 1,500 or all sizes."""
    with tempfile.TemporaryDirectory(prefix="peerwatch-bench-") as name:
        rows = reading.measure(Path(name), _NODES, _METRICS, _SECONDS, usual=True)
    by_api = {row.api: row for row in rows}
    plain, ours, floor = rows[0], by_api["remote_read"], by_api[reading.FLOOR]
    yield Measurement(
        "detector, reading 10 metrics x 900 s",
        "s",
        *(ours.seconds, plain.seconds, "requests + json", floor.seconds, "the same bytes unread"),
        nodes=_NODES,
    )
    for nodes in detector.SIZES if options.large else (_NODES,):
        with tempfile.TemporaryDirectory(prefix="peerwatch-bench-") as name:
            costs = detector.measure(Path(name), nodes, ["peerwatch"] * _RUNS)
        beside = (plain.seconds, _PLAIN, ours.seconds, "reading alone") if nodes == _NODES else ()
        yield from _of(min(costs, key=lambda cost: cost.cold), beside)


def _of(cost: detector.Cost, beside: tuple[float | str, ...]) -> Iterator[Measurement]:
    cycle, cold, resident = _GOALS.get(cost.nodes, (None, None, None))
    goals = (Goal(cold),) if cold else ()
    if beside:
        goals += (Goal(round(1 / 39, 4), "ratio"),)
    nodes = cost.nodes
    yield Measurement(
        "detector, first call: discover, read, evaluate",
        "s",
        cost.cold,
        *beside,
        goals=goals,
        nodes=nodes,
    )
    goals = (Goal(cycle),) if cycle else ()
    yield Measurement("detector, a cycle of 15 s", "s CPU", cost.cycle, goals=goals, nodes=nodes)
    yield Measurement("Prometheus, of that cycle", "s CPU", cost.server, nodes=nodes)
    goals = (Goal(resident),) if resident else ()
    yield Measurement("detector, resident", "MiB", cost.resident, goals=goals, nodes=nodes)
    if cost.nodes == _NODES:
        yield Measurement(
            "detector, idle, without web server", "MiB", cost.idle, goals=(Goal(120),)
        )


if __name__ == "__main__":
    alone(measurements)
