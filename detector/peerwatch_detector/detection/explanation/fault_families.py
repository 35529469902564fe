"""What a deviation likely means: families of faults by the metrics that show them.

Minder's table 1 (NSDI'25) relates faults to metrics. Its cells are not published as text; what is
known is its shape: after an ECC error, a lost GPU or NIC, an NVLink or a CUDA error the CPU and GPU
usage of the machine falls while the peers go on until the time-out; a downgraded PCIe link or a
lost NIC shows as a surge of pause frames and as less throughput. Metrics stand in an OR relation:
one is enough, more of them make the family a better match. Which metric speaks for which family,
and on which side of its peers, is part of the metric's entry in the preset (``faults``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from peerwatch_detector.config.preset import Weight, load_preset
from peerwatch_detector.detection.findings import ABSENT

Direction = Literal["high", "low"]
Activity = Literal["trains", "slowed", "waits", "rests", "unknown"]
# A metric and the side of its peers on which the node is.
Shown = tuple[str, Direction]

# A rank that died cannot leave the job training; where nothing tells of progress it may have.
_STOPPED: frozenset[Activity] = frozenset({"waits", "unknown"})
# While the ranks wait, the GPUs and links of all do next to nothing.
_GOES_ON: frozenset[Activity] = frozenset({"trains", "slowed", "unknown"})
_ANY: frozenset[Activity] = _STOPPED | _GOES_ON | {"rests"}


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
    first_check
        The first thing to check.
    """

    family: str
    short: str
    text: str
    first_check: str


@dataclass(frozen=True, slots=True)
class FaultFamily:
    """Which deviations point to a meaning.

    Parameters
    ----------
    name
        By which the metrics of the preset refer to it.
    meaning
        In words.
    decisive
        One of these is needed.
    supporting
        These make it a better match.
    activities
        What the job does while such a fault lasts.
    """

    name: str
    meaning: Meaning
    decisive: frozenset[Shown]
    supporting: frozenset[Shown]
    activities: frozenset[Activity]

    def explained(self, shown: frozenset[Shown], activity: Activity) -> int:
        """Return how many of the deviations the family explains; 0 = it does not fit."""
        if activity not in self.activities or not self.decisive & shown:
            return 0
        return len((self.decisive | self.supporting) & shown)


UNKNOWN = Meaning(
    "unknown",
    "no known pattern",
    "The node is unlike its peers in a way that fits no known family of faults.",
    "Compare the node with its peers on the job's dashboard, metric by metric.",
)


def _shown(family: str, weight: Weight) -> frozenset[Shown]:
    """Return the deviations that speak for a family, as the metrics' entries say."""
    return frozenset(
        (metric.name, side)
        for metric in load_preset("peerwatch").metrics
        for side, weights in metric.faults.items()
        if weights.get(family) == weight
    )


def _family(
    meaning: Meaning,
    activities: frozenset[Activity] = _ANY,
    *,
    name: str | None = None,
    decisive: frozenset[Shown] = frozenset(),
) -> FaultFamily:
    """Return a family, with a name of its own where it shares its meaning with another.

    Parameters
    ----------
    meaning, activities
        See ``FaultFamily``.
    name
        Default: the meaning's.
    decisive
        What belongs to it beside the metrics of the preset.
    """
    name = name or meaning.family
    return FaultFamily(
        name, meaning, decisive | _shown(name, "decisive"), _shown(name, "supporting"), activities
    )


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
    # Minder: "machine unreachable"; an absent exporter shows it more directly than its PFC.
    _family(
        Meaning(
            "unreachable",
            "machine down or cut off",
            "The machine or its exporter cannot be reached, while its peers can: it is down, "
            "rebooting or cut off.",
            "Its console or BMC: is it up? Then the management network, then the exporter's unit.",
        ),
        decisive=frozenset({(ABSENT, "high")}),
    ),
    # MegaScale (NSDI'24): heartbeats of the ranks are watched, a rank that stops is hung or dead.
    _family(
        Meaning(
            "hung_rank",
            "a rank hangs or died",
            "A training process on the node has stopped making steps: it hangs, was stopped or "
            "died.",
            "The stack of the rank's process (py-spy dump), and the last lines of its log.",
        ),
    ),
    # A loop in user code, a lock that is spun on, a garbage collection: it is known whose CPU time
    # it is, so no other program is to blame.
    _family(
        Meaning(
            "spinning_rank",
            "its own rank burns CPU",
            "A training process of the node itself keeps the CPU busy while those of its peers do "
            "not: it loops in its own code, or works at something that the others wait for.",
            "The stack of the rank's process (py-spy dump), and which of its threads is busy "
            "(top -H).",
        ),
    ),
    # Whose memory it is, is known, too: a rank that grows ends when the kernel finds none left.
    _family(
        Meaning(
            "memory_leak",
            "its own rank takes more memory",
            "The training processes of the node itself hold more of its memory than those of its "
            "peers do: a leak in a rank or a data loader, which the kernel ends at last.",
            "Which process of the rank grows (ps, sorted by RSS), and since which step.",
        ),
    ),
    # Minder: PCIe downgrading and NIC faults raise the faulty machine's pause frames, and its
    # congestion marks, because the host no longer takes what the network brings.
    _family(
        _CANNOT_DRAIN,
    ),
    # The same where the node alone is slow: its GPUs wait for the data, and no lower clock or
    # power would make it send pause frames.
    _family(
        _CANNOT_DRAIN,
        _GOES_ON,
        name="slow_pcie_or_nic",
    ),
    # Minder: ECC, CUDA and GPU execution errors, a lost GPU, HDFS: usage falls, the peers wait.
    _family(
        Meaning(
            "dead_rank",
            "its ranks died or hang",
            "The ranks on the node died or hang, and the others wait for them: an ECC, CUDA or "
            "other GPU error, a lost GPU, or an error of the software or its storage.",
            "Xid and ECC lines of the kernel log (dmesg), then the last lines of the ranks' logs.",
        ),
        _STOPPED,
    ),
    # The reverse: in a collective nobody computes, so who still does is the one waited for.
    _family(
        Meaning(
            "late_rank",
            "it still computes, others wait",
            "The node still computes while the others wait for it: its rank is late or stuck in "
            "one step.",
            "The stack of the ranks (py-spy dump), and how much data their last step held.",
        ),
        frozenset({"waits"}),
    ),
    # Llama 3 (table 5: thermal faults and sensors), Meta: a throttled GPU slows every rank.
    _family(
        Meaning(
            "throttling",
            "heat or power throttling",
            "The GPUs run below the clock or power of their peers: they are too hot, or their "
            "power is capped.",
            "Clock event reasons, temperature and power limit (nvidia-smi -q -d "
            "PERFORMANCE,TEMPERATURE,POWER), then fans and power supplies.",
        ),
        _GOES_ON,
    ),
    # Minder: NVLink errors lower the traffic of the GPUs on that link.
    _family(
        Meaning(
            "nvlink",
            "NVLink is slow or failing",
            "A GPU moves less over NVLink than its peers: a link is down, retrains or has errors.",
            "NVLink state and error counters (nvidia-smi nvlink -s and -e), Xid 74 in dmesg.",
        ),
        _GOES_ON,
    ),
    # Minder: NIC dropout and optical cables (AOC) lower the throughput; packets are repeated.
    _family(
        Meaning(
            "network",
            "NIC, cable or switch port",
            "The node's traffic does not get through as that of its peers: NIC, cable, optics or "
            "switch port.",
            "State, speed and error counters of the NICs (ethtool, rdma link), then the switch "
            "port's.",
        ),
    ),
    # Editorial: a GPU that does less while the job goes on.
    _family(
        Meaning(
            "idle_gpu",
            "a GPU does less than its peers",
            "A GPU works less than its peers while the job goes on: lost, broken, or given less "
            "to do.",
            "Is the GPU there and whose processes are on it (nvidia-smi); Xid lines in dmesg.",
        ),
        _GOES_ON,
    ),
    # Editorial: a node's host metrics rise when other programs run beside the job.
    _family(
        Meaning(
            "host_load",
            "another process loads the host",
            "Another process on the host takes CPU, memory, network or GPU memory from the job.",
            "The processes that are not the job's, by CPU and memory (top), and on the GPUs "
            "(nvidia-smi).",
        ),
    ),
)


def meaning_of(shown: frozenset[Shown], activity: Activity) -> Meaning:
    """Return what the deviations of one node likely mean.

    Parameters
    ----------
    shown
        Metrics that deviate together, and in which direction.
    activity
        What the job does meanwhile.

    Returns
    -------
    Meaning
        Of the family that explains most of them, or ``UNKNOWN``.
    """
    best = max(FAMILIES, key=lambda family: family.explained(shown, activity))
    return best.meaning if best.explained(shown, activity) else UNKNOWN
