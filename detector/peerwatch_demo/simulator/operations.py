"""What the operation of a cluster does to healthy jobs, so that a node or all of them look odd.

Pauses, evaluations and restarts concern the whole job; noisy neighbours, slow readers, driver
updates and clock steps single nodes. How often and for how long each happens is an assumption,
taken wide: rates per hour of a job, not per node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from peerwatch_demo.job.timeline import Phase
from peerwatch_demo.job.workload import Workload
from peerwatch_demo.simulator.signals import Values

_HOUR = 3600.0
# Per hour of a job; editorial, as said above.
_PAUSES, _DATA_STALLS, _SLOW_READERS, _NEIGHBOURS = 2.0, 3.0, 1.0, 1.0
_RESTARTS, _DIPS, _DRIVER_UPDATES, _CLOCK_STEPS = 0.5, 0.4, 0.5, 0.5
# Share of the jobs that evaluate in between; editorial.
_EVALUATES = 0.6

Change = Callable[[Values], None]


@dataclass(slots=True)
class Operations:
    """What happens to one job: the timeline has its part already, the samples get theirs later."""

    changes: list[Change] = field(default_factory=list)

    def apply(self, values: Values) -> None:
        """Let the samples show it."""
        for change in self.changes:
            change(values)


def plan_operations(random: np.random.Generator, work: Workload) -> Operations:
    """Draw what happens to a job, and write what concerns all its nodes into its timeline."""
    plan, hours = Operations(), work.seconds / _HOUR
    for rate, event in (
        (_DIPS, _dip),
        (_NEIGHBOURS, _neighbour),
        (_PAUSES, _pause),
        (_DATA_STALLS, _data_stall),
        (_SLOW_READERS, _slow_reader),
        (_DRIVER_UPDATES, _driver_update),
        (_CLOCK_STEPS, _clock_step),
        (_RESTARTS, _restart),
    ):
        for _ in range(random.poisson(rate * hours)):
            event(random, work, plan, int(random.integers(0, work.seconds)))
    if random.random() < _EVALUATES:
        _evaluations(random, work, plan)
    return plan


def _log_uniform(random: np.random.Generator, low: float, high: float) -> int:
    return int(np.exp(random.uniform(np.log(low), np.log(high))))


def _pause(random: np.random.Generator, work: Workload, _plan: Operations, start: int) -> None:
    """Let all wait in a collective for what is outside the job: storage, a service, a network."""
    work.timeline.add(Phase.WAIT, start, start + _log_uniform(random, 8, 300))


def _data_stall(random: np.random.Generator, work: Workload, _plan: Operations, start: int) -> None:
    work.timeline.add(Phase.STALL, start, start + _log_uniform(random, 5, 150))


def _slow_reader(random: np.random.Generator, work: Workload, plan: Operations, start: int) -> None:
    """Let one node get its next batch late, so that all wait for it; soon it comes."""
    node, end = int(random.integers(work.nodes)), start + _log_uniform(random, 3, 40)
    work.timeline.add(Phase.WAIT, start + 2, end)
    cpu, traffic = random.uniform(0.6, 1.0), random.uniform(0.5, 3.0)

    def change(values: Values) -> None:
        values["cpu_usage"][node, start:end] *= cpu
        values["network_throughput"][node, start:end] *= traffic

    plan.changes.append(change)


def _neighbour(random: np.random.Generator, work: Workload, plan: Operations, start: int) -> None:
    """Let another program take CPU and traffic of a node, and of the job a little of its speed."""
    node, end = int(random.integers(work.nodes)), start + _log_uniform(random, 60, 900)
    work.timeline.slow(1 - random.uniform(0.0, 0.03), start, end)
    cpu, traffic = random.uniform(3, 20), 10 ** random.uniform(6, 8)

    def change(values: Values) -> None:
        values["cpu_usage"][node, start:end] += cpu
        values["network_throughput"][node, start:end] += traffic
        values["pcie_bandwidth"][node, start:end] *= 0.98

    plan.changes.append(change)


def _dip(random: np.random.Generator, work: Workload, _plan: Operations, start: int) -> None:
    """Make all steps a little longer for half an hour to hours: at night others move data."""
    length, depth = _log_uniform(random, 1200, 7200), random.uniform(0.01, 0.06)
    parts = 12
    for part in range(parts):
        speed = 1 - depth * np.sin(np.pi * (part + 0.5) / parts)
        begin = start + part * length // parts
        work.timeline.slow(speed, begin, begin + length // parts)


def _restart(random: np.random.Generator, work: Workload, plan: Operations, start: int) -> None:
    """End the job and start it again; its nodes are ready one after another, the ranks anew."""
    back = start + _log_uniform(random, 40, 500)
    late = random.exponential(10, work.nodes).clip(0, 60).astype(int)
    end = back + int(late.max())
    work.timeline.add(Phase.HALT, start, back)
    work.timeline.add(Phase.WAIT, back, end)
    halted = {metric: levels[Phase.HALT] for metric, levels in work.levels.items()}
    first = int(random.integers(work.nodes)) if random.random() < 0.3 else 0
    offsets = {
        metric: random.normal(0, 0.02, work.nodes) for metric in ("cpu_usage", "memory_usage")
    }

    def change(values: Values) -> None:
        for node, seconds in enumerate(late):
            for metric in ("gpu_duty_cycle", "gpu_power", "gpu_memory_used", "cpu_usage"):
                values[metric][node, ..., back : back + seconds] = halted[metric]
        for metric, own in offsets.items():
            values[metric][:, back:] *= np.exp(own)[:, None]
        if first:
            # The first rank also logs, and serves the rendezvous.
            for metric, factor in (("cpu_usage", 1.15), ("network_throughput", 4.0)):
                values[metric][0, back:] /= factor
                values[metric][first, back:] *= factor

    plan.changes.append(change)


def _evaluations(random: np.random.Generator, work: Workload, plan: Operations) -> None:
    """Evaluate every so often: forward only, hardly any traffic, and one node is late."""
    every, length = int(random.integers(600, 2400)), _log_uniform(random, 30, 240)
    factors = {
        "gpu_power": random.uniform(0.65, 0.9),
        "gpu_tensor_activity": random.uniform(0.4, 0.8),
        "nvlink_bandwidth": random.uniform(0.1, 0.5),
        "rdma": random.uniform(0.02, 0.2),
        "pcie_bandwidth": random.uniform(0.5, 1.0),
        "ecn_rate": 0.1,
        "pfc_tx_rate": 0.1,
    }
    for start in range(int(random.integers(60, every)), work.seconds, every):
        end = start + length
        late = int(random.integers(work.nodes)), _log_uniform(random, 2, 30)
        work.timeline.add(Phase.WAIT, end, end + late[1])

        def change(
            values: Values, start: int = start, end: int = end, late: tuple[int, int] = late
        ) -> None:
            node, seconds = late
            for metric, factor in factors.items():
                values[metric][..., start:end] *= factor
            for metric in ("gpu_power", "gpu_tensor_activity"):
                busy = work.levels[metric][Phase.TRAIN] * factors[metric]
                values[metric][node, :, end : end + seconds] = busy

        plan.changes.append(change)


def _driver_update(
    random: np.random.Generator, work: Workload, plan: Operations, start: int
) -> None:
    """Update agents and drivers node by node: each is gone for a while, and a little changed.

    A driver needs the node's GPUs idle; nodes of a job that runs get the rest of the update.
    """
    order = random.permutation(work.nodes)[: int(random.integers(1, work.nodes + 1))]
    gone = [int(random.integers(8, 50)) for _ in order]
    each = _log_uniform(random, 5, 120)
    memory = random.uniform(-3e8, 6e8)

    def change(values: Values) -> None:
        for turn, (node, seconds) in enumerate(zip(order, gone, strict=True)):
            begin = start + turn * each
            for array in values.values():
                array[node, ..., begin : begin + seconds] = np.nan
            values["gpu_memory_used"][node, :, begin:] += memory

    plan.changes.append(change)


def _clock_step(random: np.random.Generator, work: Workload, plan: Operations, start: int) -> None:
    """Set a clock: of all nodes there is a hole, or one node's samples are a little late."""
    seconds = int(random.integers(1, 8))
    node = int(random.integers(work.nodes)) if random.random() < 0.5 else None

    def change(values: Values) -> None:
        for array in values.values():
            if node is None:
                array[..., start : start + seconds] = np.nan
            else:
                array[node, ..., start + seconds :] = array[node, ..., start:-seconds].copy()

    plan.changes.append(change)
