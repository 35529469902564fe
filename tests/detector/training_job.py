"""A small synchronous training job: levels of its metrics by what the job does."""

from __future__ import annotations

from typing import Any

import numpy as np

from detector.fakes import START, Replay, node_names
from peerwatch_demo.job.timeline import Phase, Timeline
from peerwatch_demo.job.workload import Workload
from peerwatch_detector.config import DetectorConfig

# Second from which a fault shows.
ONSET = 600
FAULT = slice(ONSET, None)
# No finding is due before, unless a test says otherwise.
QUIET = ONSET - 60
NODES, GPUS = 6, 4
# Usual levels: while training, while the GPUs rest, and while the ranks wait for one of them.
LEVELS = {
    name: (training, rest, rest, wait, rest)
    for name, training, rest, wait in (
        ("gpu_tensor_activity", 0.4, 0.0, 0.001),
        ("gpu_duty_cycle", 0.99, 0.05, 1.0),
        ("gpu_power", 500.0, 90.0, 200.0),
        ("cpu_usage", 0.3, 0.35, 0.3),
        ("network_throughput", 2e6, 2e6, 2e6),
        ("ecn_rate", 400.0, 1.0, 1.0),
    )
}
PER_GPU = ("gpu_tensor_activity", "gpu_duty_cycle", "gpu_power")
Values = dict[str, np.ndarray]


def training(
    seconds: int,
    *,
    waits: tuple[int, int] | None = None,
    rests: tuple[int, int] | None = None,
    slower: float = 0.0,
    seed: int = 0,
    nodes: int = NODES,
) -> Values:
    """Return a job whose nodes differ a little for good and from second to second.

    Parameters
    ----------
    seconds
        Length.
    waits, rests
        First second and end of a wait for one rank, and of a rest of the GPUs.
    slower
        Share of its progress that the job loses from the onset on.
    """
    rng = np.random.default_rng(seed)
    timeline = Timeline()
    for phase, span in ((Phase.WAIT, waits), (Phase.CHECKPOINT, rests)):
        if span is not None:
            timeline.add(phase, *span)
    timeline.slow(1 - slower, ONSET)
    follows = frozenset({"gpu_tensor_activity"})
    work = Workload(nodes, seconds, LEVELS, np.ones(seconds), timeline, follows_speed=follows)
    values = {}
    for name in LEVELS:
        level = work.expected(name)
        shape = (nodes, GPUS, seconds) if name in PER_GPU else (nodes, seconds)
        own = rng.normal(0, 0.02, (*shape[:-1], 1)) + rng.normal(0, 0.03, shape)
        values[name] = (level * np.exp(own)).astype(np.float32)
    return values


def changed(values: Values, metric: str, node: int | slice, factor: float, span: slice) -> Values:
    """Multiply one metric of one node, or of several."""
    values[metric][node, ..., span] *= factor
    return values


def stopped_rank(seconds: int = 900, node: int = 2) -> Values:
    """One rank stops at the onset, its CPU with it; the others soon wait for it."""
    values = training(seconds, waits=(ONSET + 10, seconds))
    return changed(values, "cpu_usage", node, 0.3, FAULT)


def replay(values: Values, quiet: int = QUIET, **settings: Any) -> Replay:
    """Return a replay of these metrics by the shipped settings but for those given."""
    metrics = {"enabled": list(values)}
    return Replay(DetectorConfig.model_validate({"metrics": metrics} | settings), values, quiet)


def found(
    values: Values, cycle: int = 15, quiet: int = QUIET, **settings: Any
) -> list[tuple[str, str, int, int]]:
    """Return node, GPU, onset and time of all findings, in seconds from the start."""
    raised = replay(values, quiet, **settings).run(cycle=cycle)
    return [
        (finding.node, finding.gpu, int(finding.since - START), int(finding.raised - START))
        for finding in raised
    ]


def nodes_found(values: Values, **settings: Any) -> list[str]:
    return [finding[0] for finding in found(values, **settings)]


__all__ = [
    "FAULT",
    "NODES",
    "ONSET",
    "Values",
    "changed",
    "found",
    "node_names",
    "nodes_found",
    "replay",
    "stopped_rank",
    "training",
]
