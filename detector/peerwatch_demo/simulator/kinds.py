"""The kinds of faults: on which metrics of the faulty node each shows, and what the job does.

The first ten are those of Minder (NSDI'25, table 1). The others are the further causes of
interruptions that Llama 3 (arXiv 2407.21783, table 5), Delta's GPU errors and Unicron list, as far
as one node is at fault: what a switch does concerns many, and silent data corruption shows in none
of these metrics.
"""

from __future__ import annotations

from dataclasses import dataclass

# Not a metric: samples that stop coming.
EVERYTHING = "everything"


@dataclass(frozen=True, slots=True)
class Effect:
    """How a fault shows on one metric of the faulty node.

    Parameters
    ----------
    metric
        The metric, or ``rdma``, or ``everything`` for samples that stop coming.
    factor
        What the value is multiplied by at full strength.
    likely
        Probability that this fault shows here at all.
    gpus
        On how many GPUs; 0 means the whole node.
    own_source
        The values do not follow the job's traffic: a NIC that sends pause frames because it cannot
        drain its buffers goes on while the job waits.
    flaps
        It comes and goes, some seconds each.
    """

    metric: str
    factor: float
    likely: float
    gpus: int = 0
    own_source: bool = False
    flaps: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    Parameters
    ----------
    effects
        Where it shows.
    halts
        Probability that the job halts; else it goes on, slowed.
    slowdown
        Range of the job's speed while it goes on.
    gpus
        On how many GPUs the cause lies, where single ones show it; 0 = the node, or its whole board
        of GPUs, shows it.
    """

    effects: tuple[Effect, ...]
    halts: float
    slowdown: tuple[float, float] = (0.6, 0.95)
    gpus: int = 0


_DEAD_RANKS = (
    Effect("cpu_usage", 0.2, 0.8),
    Effect("memory_usage", 0.75, 0.5),
    Effect("gpu_memory_used", 0.12, 0.5),
    Effect("network_throughput", 0.1, 0.6),
    Effect("rdma", 0.05, 0.6),
)
_CONGESTED = (
    Effect("pfc_tx_rate", 60.0, 0.95, own_source=True),
    Effect("ecn_rate", 10.0, 0.8, own_source=True),
)

KINDS: dict[str, Kind] = {
    "ecc_error": Kind((*_DEAD_RANKS, Effect("gpu_duty_cycle", 0.02, 0.5, gpus=8)), halts=1.0),
    "cuda_exec_error": Kind((*_DEAD_RANKS, Effect("gpu_power", 0.6, 0.4, gpus=8)), halts=1.0),
    "gpu_exec_error": Kind(
        (Effect("gpu_power", 0.6, 0.7, gpus=1), Effect("cpu_usage", 0.6, 0.5)),
        halts=1.0,
        gpus=1,
    ),
    "hdfs_error": Kind(
        (Effect("cpu_usage", 0.4, 0.8), Effect("network_throughput", 0.15, 0.9)),
        halts=1.0,
    ),
    "gpu_drop": Kind((*_DEAD_RANKS, Effect("gpu_duty_cycle", 0.0, 0.9, gpus=1)), halts=0.9, gpus=1),
    "machine_unreachable": Kind(
        (
            Effect(EVERYTHING, 0.0, 0.5),
            Effect("network_throughput", 0.15, 1.0),
            Effect("rdma", 0.05, 1.0),
        ),
        halts=1.0,
    ),
    "pcie_downgrade": Kind((*_CONGESTED, Effect("pcie_bandwidth", 0.6, 0.9)), halts=0.0),
    "nic_dropout": Kind((*_CONGESTED, Effect("rdma", 0.4, 0.8)), halts=0.5),
    "aoc_error": Kind((*_CONGESTED, Effect("rdma", 0.8, 0.4)), halts=0.3),
    "nvlink_error": Kind(
        (
            Effect("nvlink_bandwidth", 0.5, 0.9, gpus=2),
            Effect("gpu_power", 0.85, 0.3, gpus=2),
        ),
        halts=0.6,
        gpus=2,
    ),
    # A GPU's firmware stops answering (XID 119): what it was doing ends, the process hangs.
    "gsp_error": Kind(
        (
            Effect("gpu_duty_cycle", 0.0, 0.6, gpus=1),
            Effect("gpu_power", 0.4, 0.9, gpus=1),
            Effect("cpu_usage", 0.7, 0.5),
        ),
        halts=1.0,
        gpus=1,
    ),
    # Heat or a fan that fails: the GPU lowers its clock, all others wait for it in every step.
    "thermal_throttling": Kind(
        (
            Effect("gpu_sm_clock", 0.7, 0.95, gpus=1),
            Effect("gpu_power", 0.7, 0.8, gpus=1),
            Effect("gpu_tensor_activity", 0.85, 0.4, gpus=1),
        ),
        halts=0.0,
        gpus=1,
    ),
    # Of several power supplies one fails, and the board caps all GPUs.
    "power_supply": Kind(
        (
            Effect("gpu_power", 0.65, 0.95, gpus=8),
            Effect("gpu_sm_clock", 0.75, 0.8, gpus=8),
        ),
        halts=0.1,
    ),
    # A process in a deadlock sleeps, or spins, while its GPUs wait inside the collective.
    "hung_process": Kind(
        (
            Effect("cpu_usage", 0.25, 0.8),
            Effect("network_throughput", 0.2, 0.5),
            Effect("gpu_power", 0.75, 0.4, gpus=8),
        ),
        halts=1.0,
    ),
    # The kernel corrects memory errors, page by page: host code and copies are slow.
    "host_memory": Kind(
        (Effect("cpu_usage", 1.6, 0.8), Effect("pcie_bandwidth", 0.7, 0.7)),
        halts=0.3,
        slowdown=(0.5, 0.9),
    ),
    # The local disk goes read-only or times out: loaders and checkpoints block.
    "ssd_error": Kind(
        (
            Effect("cpu_usage", 0.45, 0.8),
            Effect("memory_usage", 0.85, 0.4),
            Effect("network_throughput", 0.4, 0.4),
        ),
        halts=0.8,
    ),
    # A port that comes and goes: its traffic stops for seconds, and what is resent is congested.
    "link_flap": Kind(
        (
            Effect("rdma", 0.2, 0.9, flaps=True),
            Effect("ecn_rate", 6.0, 0.6, own_source=True),
            Effect("pfc_tx_rate", 15.0, 0.4, own_source=True),
        ),
        halts=0.4,
    ),
    # Kernel panic, reboot, maintenance without notice.
    "node_reboot": Kind((Effect(EVERYTHING, 0.0, 1.0),), halts=1.0),
}
