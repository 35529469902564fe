"""Draws training jobs: their levels, their rhythm, their checkpoints and data stalls."""

from __future__ import annotations

import numpy as np

from peerwatch_demo.job.timeline import Phase, Timeline
from peerwatch_demo.job.workload import Array, Workload

# Names, units and axes of the metrics of a case, as in its case.json.
GPU_METRICS: dict[str, str] = {
    "gpu_duty_cycle": "percent",
    "gpu_power": "watts",
    "gpu_temperature": "celsius",
    "gpu_tensor_activity": "ratio",
    "gpu_graphics_activity": "ratio",
    "gpu_sm_clock": "megahertz",
    "gpu_memory_used": "bytes",
    "nvlink_bandwidth": "bytes per second",
}
NODE_METRICS: dict[str, str] = {
    "cpu_usage": "percent",
    "memory_usage": "percent",
    "disk_usage": "percent",
    "network_throughput": "bytes per second",
    "tcp_rdma_throughput": "bytes per second",
    "pfc_tx_rate": "packets per second",
    "ecn_rate": "packets per second",
    "cnp_rate": "packets per second",
    "pcie_bandwidth": "bytes per second",
}


def draw_workload(random: np.random.Generator, nodes: int, seconds: int) -> Workload:
    """Draw a job: its levels, its rhythm, its checkpoints and data stalls."""
    levels = _levels(random)
    return Workload(
        nodes=nodes,
        seconds=seconds,
        levels=levels,
        timeline=_timeline(random, seconds),
        rhythm=_rhythm(random, seconds),
        stages=np.zeros(nodes, dtype=np.int64),
    )


def draw_stages(random: np.random.Generator, work: Workload, stages: tuple[int, int]) -> None:
    """Divide the nodes of a job among stages, three nodes each at least."""
    most = min(stages[1], work.nodes // 3)
    if most > 1:
        count = int(random.integers(min(stages[0], most), most + 1))
        work.stages = np.arange(work.nodes) * count // work.nodes


def _levels(random: np.random.Generator) -> dict[str, tuple[float, ...]]:
    """Draw what the metrics of a job are in each phase; the ranges are those of A100 and H100."""
    power = random.uniform(280, 620)
    nvlink = 10 ** random.uniform(10.6, 11.4)
    rdma = 10 ** random.uniform(9.1, 10.0)
    cpu = random.uniform(18, 50)
    tcp = 10 ** random.uniform(6.0, 6.6)
    clock = random.choice([1410.0, 1755.0, 1980.0])
    memory = random.uniform(20, 65)
    pcie = 10 ** random.uniform(9.4, 10.1)
    ecn = 10 ** random.uniform(1.0, 3.0)
    pfc = ecn * random.uniform(0.02, 0.08)
    tensor, graphics = random.uniform(0.25, 0.5), random.uniform(0.82, 0.96)
    held = random.uniform(4.5e10, 7.4e10)
    idle = random.uniform(65, 110)
    wait = idle + random.uniform(40, 110)
    return {
        # train, stall, checkpoint, wait, halt
        "gpu_duty_cycle": (99.5, 70.0, 6.5, 99.9, 0.1),
        "gpu_power": (power, idle + 20, idle + 10, wait, idle),
        "gpu_tensor_activity": (tensor, 0.03, 0.01, 0.001, 0.0),
        "gpu_graphics_activity": (graphics, 0.1, 0.07, 0.98, 0.0),
        "gpu_sm_clock": (clock, clock, clock, clock, 345.0),
        "gpu_memory_used": (held, held, held, held, 6e8),
        "nvlink_bandwidth": (nvlink, nvlink * 0.15, nvlink * 0.12, 1.6e6, 1e5),
        "cpu_usage": (cpu, cpu * 0.95, cpu + 13, cpu, 3.0),
        "memory_usage": (memory, memory, memory, memory, memory * 0.97),
        "disk_usage": (55.0, 55.0, 55.0, 55.0, 55.0),
        "network_throughput": (tcp, tcp, tcp * 180, tcp, tcp * 0.2),
        "rdma": (rdma, rdma * 0.1, rdma * 0.15, 3e5, 0.0),
        "pfc_tx_rate": (pfc, pfc * 0.1, pfc * 0.2, 0.15, 0.02),
        "ecn_rate": (ecn, ecn * 0.1, ecn * 0.3, 1.0, 0.05),
        "pcie_bandwidth": (pcie, pcie * 0.3, pcie * 0.2, 3e7, 1e6),
    }


def _timeline(random: np.random.Generator, seconds: int) -> Timeline:
    timeline = Timeline()
    for _ in range(random.poisson(seconds / 400)):
        begin = int(random.integers(0, seconds))
        timeline.add(Phase.STALL, begin, begin + int(random.integers(3, 12)))
    every = int(random.integers(500, 1100))
    for begin in range(int(random.integers(60, every)), seconds, every):
        timeline.add(Phase.CHECKPOINT, begin, begin + int(random.integers(15, 45)))
    return timeline


def _rhythm(random: np.random.Generator, seconds: int) -> Array:
    """Draw an iteration time and return how active the job is in each second, 0.25 to 1."""
    period, share = random.uniform(0.8, 9.0), random.uniform(0.65, 0.95)
    fine = np.arange(seconds * 10) / 10
    drift = np.cumsum(random.normal(0, 0.01, len(fine)))
    busy = ((fine + drift) % period) < share * period
    computes: Array = busy.reshape(seconds, 10).mean(axis=1)
    return 0.25 + 0.75 * computes
