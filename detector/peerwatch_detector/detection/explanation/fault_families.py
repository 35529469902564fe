"""What a deviation likely means: families of faults by the metrics that show them.

Minder's table 1 (NSDI'25) relates faults to metrics. Its cells are not published as text; what is
known is its shape: after an ECC error, a lost GPU or NIC, an NVLink or a CUDA error the CPU and GPU
usage of the machine falls while the peers go on until the time-out; a downgraded PCIe link or a
lost NIC shows as a surge of pause frames and as less throughput. Metrics stand in an OR relation:
one is enough, more of them make the family a better match.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from peerwatch_detector.detection.findings import ABSENT

Direction = Literal["high", "low"]
Course = Literal["trains", "slowed", "waits", "rests", "unknown"]
# A metric and the side of its peers on which the node is.
Shown = tuple[str, Direction]

# A rank that died cannot leave the job training; where nothing tells of progress it may have.
_STOPPED: frozenset[Course] = frozenset({"waits", "unknown"})
# While the ranks wait, the GPUs and links of all do next to nothing.
_GOES_ON: frozenset[Course] = frozenset({"trains", "slowed", "unknown"})
_ANY: frozenset[Course] = _STOPPED | _GOES_ON | {"rests"}


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a finding likely means, in words.

    Parameters
    ----------
    family
        Short name for programs.
    short
        A few words, for a page's text.
    text
        One sentence.
    look
        The first thing to look at.
    """

    family: str
    short: str
    text: str
    look: str


@dataclass(frozen=True, slots=True)
class FaultFamily:
    """Which deviations point to a meaning.

    Parameters
    ----------
    meaning
        In words.
    decisive
        One of these is needed.
    supporting
        These make it a better match.
    courses
        What the job does while such a fault lasts.
    """

    meaning: Meaning
    decisive: frozenset[Shown]
    supporting: frozenset[Shown] = frozenset()
    courses: frozenset[Course] = _ANY

    def explained(self, shown: frozenset[Shown], course: Course) -> int:
        """Return how many of the deviations the family explains; 0 = it does not fit."""
        if course not in self.courses or not self.decisive & shown:
            return 0
        return len((self.decisive | self.supporting) & shown)


UNKNOWN = Meaning(
    "unknown",
    "no known pattern",
    "The node is unlike its peers in a way that fits no known family of faults.",
    "Compare the node with its peers on the job's dashboard, metric by metric.",
)


def _shown(*metrics: str, direction: Direction) -> frozenset[Shown]:
    return frozenset((metric, direction) for metric in metrics)


_CANNOT_DRAIN = Meaning(
    "pcie_or_nic",
    "PCIe or NIC cannot drain",
    "The node cannot take in what the network brings: a PCIe link runs at less than its "
    "width or speed, or a NIC is failing.",
    "Link width and speed of GPUs and NICs (lspci -vv, LnkSta), then the NIC's error "
    "counters (ethtool -S).",
)

# Of two that explain equally much the first is taken.
FAMILIES: tuple[FaultFamily, ...] = (
    # Minder: "machine unreachable"; the exporter's silence is read more directly than its PFC.
    FaultFamily(
        Meaning(
            "unreachable",
            "machine down or cut off",
            "The machine or its exporter cannot be reached, while its peers can: it is down, "
            "rebooting or cut off.",
            "Its console or BMC: is it up? Then the management network, then the exporter's unit.",
        ),
        _shown(ABSENT, direction="high"),
    ),
    # MegaScale (NSDI'24): heartbeats of the ranks are watched, a rank that stops is hung or dead.
    FaultFamily(
        Meaning(
            "hung_rank",
            "a rank hangs or died",
            "A training process on the node has stopped making steps: it hangs, was stopped or "
            "died.",
            "The stack of the rank's process (py-spy dump), and the last lines of its log.",
        ),
        _shown("heartbeat_age", direction="high"),
        _shown("cpu_usage", "gpu_duty_cycle", "network_throughput", "gpu_power", direction="low"),
    ),
    # Minder: PCIe downgrading and NIC faults raise the faulty machine's pause frames, and its
    # congestion marks, because the host no longer takes what the network brings.
    FaultFamily(
        _CANNOT_DRAIN,
        _shown("pfc_tx_rate", direction="high") | _shown("pcie_bandwidth", direction="low"),
        _shown("ecn_rate", "cnp_rate", direction="high")
        | _shown("tcp_rdma_throughput", direction="low"),
    ),
    # The same where the node alone is slow: its GPUs wait for the data, and no lower clock or
    # power would make it send pause frames.
    FaultFamily(
        _CANNOT_DRAIN,
        _shown("pfc_tx_rate", direction="high"),
        _shown("ecn_rate", "cnp_rate", direction="high")
        | _shown(
            "tcp_rdma_throughput",
            "pcie_bandwidth",
            "nvlink_bandwidth",
            "gpu_power",
            "gpu_duty_cycle",
            "gpu_graphics_activity",
            "gpu_tensor_activity",
            direction="low",
        ),
        _GOES_ON,
    ),
    # Minder: ECC, CUDA and GPU execution errors, a lost GPU, HDFS: usage falls, the peers wait.
    FaultFamily(
        Meaning(
            "dead_rank",
            "its ranks died or hang",
            "The ranks on the node died or hang, and the others wait for them: an ECC, CUDA or "
            "other GPU error, a lost GPU, or an error of the software or its storage.",
            "Xid and ECC lines of the kernel log (dmesg), then the last lines of the ranks' logs.",
        ),
        _shown(
            "cpu_usage",
            "memory_usage",
            "network_throughput",
            "gpu_memory_used",
            "gpu_duty_cycle",
            "gpu_power",
            direction="low",
        ),
        _shown(
            "tcp_rdma_throughput",
            "gpu_graphics_activity",
            "gpu_sm_clock",
            "nvlink_bandwidth",
            "pcie_bandwidth",
            direction="low",
        ),
        _STOPPED,
    ),
    # The reverse: in a collective nobody computes, so who still does is the one waited for.
    FaultFamily(
        Meaning(
            "late_rank",
            "it still computes, others wait",
            "The node still computes while the others wait for it: its rank is late or stuck in "
            "one step.",
            "The stack of the ranks (py-spy dump), and how much data their last step held.",
        ),
        _shown("gpu_power", "gpu_tensor_activity", "gpu_graphics_activity", direction="high"),
        _shown("nvlink_bandwidth", direction="high"),
        frozenset({"waits"}),
    ),
    # Llama 3 (table 5: thermal faults and sensors), Meta: a throttled GPU slows every rank.
    FaultFamily(
        Meaning(
            "throttling",
            "heat or power throttling",
            "The GPUs run below the clock or power of their peers: they are too hot, or their "
            "power is capped.",
            "Clock event reasons, temperature and power limit (nvidia-smi -q -d "
            "PERFORMANCE,TEMPERATURE,POWER), then fans and power supplies.",
        ),
        _shown("gpu_sm_clock", "gpu_power", direction="low"),
        _shown("gpu_graphics_activity", "gpu_tensor_activity", direction="low"),
        _GOES_ON,
    ),
    # Minder: NVLink errors lower the traffic of the GPUs on that link.
    FaultFamily(
        Meaning(
            "nvlink",
            "NVLink is slow or failing",
            "A GPU moves less over NVLink than its peers: a link is down, retrains or has errors.",
            "NVLink state and error counters (nvidia-smi nvlink -s and -e), Xid 74 in dmesg.",
        ),
        _shown("nvlink_bandwidth", direction="low"),
        _shown("gpu_power", "gpu_tensor_activity", direction="low"),
        _GOES_ON,
    ),
    # Minder: NIC dropout and optical cables (AOC) lower the throughput; packets are repeated.
    FaultFamily(
        Meaning(
            "network",
            "NIC, cable or switch port",
            "The node's traffic does not get through as that of its peers: NIC, cable, optics or "
            "switch port.",
            "State, speed and error counters of the NICs (ethtool, rdma link), then the switch "
            "port's.",
        ),
        _shown("tcp_rdma_throughput", direction="low")
        | _shown("tcp_retransmissions", "tcp_send_queue", "ecn_rate", "cnp_rate", direction="high"),
        _shown("network_throughput", "nvlink_bandwidth", direction="low"),
    ),
    # Editorial: a GPU that does less while the job goes on.
    FaultFamily(
        Meaning(
            "idle_gpu",
            "a GPU does less than its peers",
            "A GPU works less than its peers while the job goes on: lost, broken, or given less "
            "to do.",
            "Is the GPU there and whose processes are on it (nvidia-smi); Xid lines in dmesg.",
        ),
        _shown(
            "gpu_duty_cycle",
            "gpu_tensor_activity",
            "gpu_graphics_activity",
            "gpu_memory_used",
            direction="low",
        ),
        _shown("gpu_power", "nvlink_bandwidth", direction="low"),
        _GOES_ON,
    ),
    # Editorial: a node's host metrics rise when other programs run beside the job.
    FaultFamily(
        Meaning(
            "host_load",
            "another process loads the host",
            "Another process on the host takes CPU, memory, network or GPU memory from the job.",
            "The processes that are not the job's, by CPU and memory (top), and on the GPUs "
            "(nvidia-smi).",
        ),
        _shown(
            "cpu_usage", "memory_usage", "network_throughput", "gpu_memory_used", direction="high"
        ),
    ),
)


def meaning_of(shown: frozenset[Shown], course: Course) -> Meaning:
    """Return what the deviations of one node likely mean.

    Parameters
    ----------
    shown
        Metrics that deviate together, and in which direction.
    course
        What the job does meanwhile.

    Returns
    -------
    Meaning
        Of the family that explains most of them, or ``UNKNOWN``.
    """
    best = max(FAMILIES, key=lambda family: family.explained(shown, course))
    return best.meaning if best.explained(shown, course) else UNKNOWN
