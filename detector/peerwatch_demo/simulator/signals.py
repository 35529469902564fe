"""The samples of a job: every node's own level, its wander and its noise on the workload's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peerwatch_demo.job.workload import Array, Workload
from peerwatch_demo.simulator.family import Family

Values = dict[str, Array]


@dataclass(frozen=True, slots=True)
class _Texture:
    """How a metric differs between nodes and seconds, as shares of its level.

    ``offset`` and ``wander`` multiply the family's; ``noise`` is from second to second.
    """

    offset: float
    wander: float
    noise: float


_TEXTURES: dict[str, _Texture] = {
    "gpu_duty_cycle": _Texture(0.0, 0.0, 0.002),
    "gpu_power": _Texture(0.4, 0.3, 0.01),
    "gpu_tensor_activity": _Texture(0.2, 0.2, 0.02),
    "gpu_graphics_activity": _Texture(0.1, 0.1, 0.015),
    "gpu_sm_clock": _Texture(0.0, 0.0, 0.002),
    "gpu_memory_used": _Texture(0.1, 0.0, 0.0002),
    "nvlink_bandwidth": _Texture(0.1, 0.1, 0.02),
    "cpu_usage": _Texture(2.5, 1.0, 0.05),
    "memory_usage": _Texture(0.8, 0.3, 0.002),
    "disk_usage": _Texture(3.0, 0.02, 0.0005),
    "network_throughput": _Texture(3.0, 2.0, 0.15),
    "rdma": _Texture(0.3, 0.3, 0.10),
    "pfc_tx_rate": _Texture(1.0, 2.0, 0.30),
    "ecn_rate": _Texture(1.0, 2.0, 0.10),
    "pcie_bandwidth": _Texture(0.1, 0.2, 0.06),
}
# Rank 0 also logs, serves the rendezvous and talks to the scheduler.
_RANK_ZERO = {"cpu_usage": 1.15, "network_throughput": 4.0, "memory_usage": 1.02}
# The older boards of a mixed job: slower, busier, with less power.
_OLDER = {
    "gpu_power": 0.72,
    "gpu_sm_clock": 0.8,
    "gpu_tensor_activity": 1.2,
    "gpu_graphics_activity": 1.06,
    "pcie_bandwidth": 0.93,
    "cpu_usage": 1.25,
}
# Made-up: a heat sink takes tens of seconds.
_TEMPERATURE_LAG_SECONDS = 25.0


def draw_signals(random: np.random.Generator, work: Workload, family: Family) -> Values:
    """Return the healthy samples, metric by metric, before any event.

    Shapes are (nodes, seconds) or (nodes, gpus, seconds); ``rdma`` stands for the RDMA part of
    ``tcp_rdma_throughput`` until ``finish`` derives it.
    """
    older = np.zeros(work.nodes, dtype=bool)
    if random.random() < family.two_generations and work.nodes > 3:
        older[: random.integers(1, work.nodes // 2 + 1)] = True
    values: Values = {}
    for metric, texture in _TEXTURES.items():
        level = work.expected(metric)
        own = np.exp(random.normal(0, texture.offset * family.offsets, work.nodes))
        own *= np.where(older, _OLDER.get(metric, 1.0), 1.0)
        own[0] *= _RANK_ZERO.get(metric, 1.0)
        wander = _wander(random, work.nodes, work.seconds, texture.wander * family.wander)
        node = level * own[:, None] * np.exp(wander)
        if metric in PER_GPU:
            per_gpu = np.exp(random.normal(0, texture.offset * family.offsets, (work.nodes, 8)))
            node = node[:, None, :] * per_gpu[:, :, None]
        noise = random.normal(0, texture.noise, node.shape)
        # Iterations fall into the seconds of every node a little differently.
        values[metric] = node * np.maximum(0, 1 + noise)
    _stage(random, values, work, family)
    values["memory_usage"] += np.linspace(0, random.uniform(0, 3), work.seconds)
    _bursts(random, values)
    return values


# What a stage's share of the work changes.
_WORK = (
    "gpu_power",
    "gpu_tensor_activity",
    "gpu_graphics_activity",
    "nvlink_bandwidth",
    "rdma",
    "pcie_bandwidth",
)


def _stage(random: np.random.Generator, values: Values, work: Workload, family: Family) -> None:
    """Give every stage of the job its own level of work, and let that wander as a whole."""
    stages = int(work.stages.max()) + 1
    if stages == 1:
        return
    for metric in _WORK:
        level = random.uniform(0.6, 1.0, stages)[:, None]
        level_over_time = level * np.exp(_wander(random, stages, work.seconds, family.stage_wander))
        factor = level_over_time[work.stages]
        values[metric] *= factor[:, None] if metric in PER_GPU else factor


PER_GPU = (
    "gpu_duty_cycle",
    "gpu_power",
    "gpu_tensor_activity",
    "gpu_graphics_activity",
    "gpu_sm_clock",
    "gpu_memory_used",
    "nvlink_bandwidth",
)


def _wander(random: np.random.Generator, nodes: int, seconds: int, size: float) -> Array:
    """Return an Ornstein-Uhlenbeck process for every node, with a time constant of minutes."""
    constant = random.uniform(90, 500)
    decay = np.exp(-1 / constant)
    kicks = random.normal(0, size * np.sqrt(1 - decay**2), (nodes, seconds))
    kicks[:, 0] = random.normal(0, size, nodes)
    drift = np.empty((nodes, seconds))
    drift[:, 0] = kicks[:, 0]
    for step in range(1, seconds):
        drift[:, step] = decay * drift[:, step - 1] + kicks[:, step]
    return drift


def _bursts(random: np.random.Generator, values: Values) -> None:
    """Add short congestion that the whole job feels, each node as much as it happens to."""
    nodes, seconds = values["ecn_rate"].shape
    for _ in range(random.poisson(seconds / 150)):
        start, length = int(random.integers(0, seconds)), int(random.integers(1, 4))
        size = random.exponential(1.0, (nodes, 1)) * 10 ** random.uniform(0.5, 1.5)
        for metric in ("ecn_rate", "pfc_tx_rate"):
            values[metric][:, start : start + length] *= 1 + size


def finish(random: np.random.Generator, values: Values) -> Values:
    """Derive what follows from the rest: temperature, CNPs, the sum of all traffic; set limits."""
    idle = np.quantile(values["gpu_power"], 0.001)
    target = 32 + (values["gpu_power"] - idle) / (values["gpu_power"].max() - idle) * 33
    target = target + random.normal(0, 2, (*target.shape[:2], 1))
    values["gpu_temperature"] = _lagged(target)
    values["cnp_rate"] = values["ecn_rate"] * random.normal(0.5, 0.02, values["ecn_rate"].shape)
    values["tcp_rdma_throughput"] = values["network_throughput"] + values.pop("rdma")
    for metric in ("pfc_tx_rate", "ecn_rate", "cnp_rate"):
        # They are counts: what is read once a second is whole packets.
        values[metric] = random.poisson(np.maximum(values[metric], 0)).astype(float)
    for metric in ("cpu_usage", "memory_usage", "disk_usage", "gpu_duty_cycle"):
        values[metric] = np.clip(values[metric], 0, 100)
    for metric in ("gpu_tensor_activity", "gpu_graphics_activity"):
        values[metric] = np.clip(values[metric], 0, 1)
    return values


def _lagged(target: Array) -> Array:
    share = 1 / _TEMPERATURE_LAG_SECONDS
    lagged = np.empty_like(target)
    lagged[..., 0] = target[..., 0]
    for step in range(1, target.shape[-1]):
        lagged[..., step] = lagged[..., step - 1] + share * (
            target[..., step] - lagged[..., step - 1]
        )
    return lagged


def lose_samples(
    random: np.random.Generator, values: dict[str, NDArray[np.float32]], family: Family
) -> None:
    """Lose samples: scrapes that fail, exporters that restart."""
    nodes, seconds = values["cpu_usage"].shape
    lost = random.random((nodes, seconds)) < random.uniform(0, family.lost_samples)
    for _ in range(random.poisson(family.restarts)):
        start, length = int(random.integers(0, seconds)), int(random.integers(5, 60))
        lost[random.integers(0, nodes), start : start + length] = True
    for array in values.values():
        mask = lost if array.ndim == 2 else np.broadcast_to(lost[:, None, :], array.shape)
        array[mask] = np.nan
