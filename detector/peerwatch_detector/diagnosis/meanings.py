"""What the classes of a verdict mean to a person, and what to check first."""

from __future__ import annotations

from peerwatch_detector.detection.explanation.fault_families import Meaning
from peerwatch_detector.diagnosis.verdict import ClassName

_STACK = "The stack of the rank's process on the node (py-spy dump), and its last log lines."

# By class: in a few words, in a sentence, what to check first.
_TEXTS: dict[ClassName, tuple[str, str, str]] = {
    "rank_exited": (
        "a rank's process ended",
        "The process of a rank has ended without finishing, and the others wait for it.",
        "The last lines of the rank's log, then the kernel log of the node (dmesg): out of memory, "
        "Xid, a signal.",
    ),
    "rank_zombie": (
        "a rank's process is dead, not reaped",
        "The process of a rank is dead, and its launcher has not noticed.",
        "The last lines of the rank's log, then why its launcher does not end the job.",
    ),
    "rank_stopped": (
        "a rank's process is stopped",
        "The process of a rank is stopped by a signal, and the others wait for it.",
        "Who stopped it: job control, an operator, a profiler or checkpoint tool; kill -CONT lets "
        "it go on.",
    ),
    "not_launched": (
        "a rank does not start a collective",
        "A rank did not launch a collective that its peers wait in: its program hangs or is late.",
        _STACK,
    ),
    "launched_not_started": (
        "a GPU does not start a collective",
        "A rank launched a collective, but its GPU does not start it: earlier work on the GPU "
        "does not end.",
        "Xid lines of the kernel log, then utilisation and power of the GPU (nvidia-smi).",
    ),
    "mismatch": (
        "ranks launched different collectives",
        "Ranks of a group launched collectives that do not match in kind, size or type.",
        "What the program does differently on the ranks named.",
    ),
    "call_order": (
        "collectives in different orders",
        "Ranks launched the collectives of their groups in different orders and wait in a circle.",
        "The order of calls in the program on the ranks named.",
    ),
    "network_stuck": (
        "a collective is stuck in the network",
        "All ranks of a group started a collective and none completes: data does not arrive.",
        "Error counters, state and path of the node's NICs, then the switch ports.",
    ),
    "no_data": (
        "a rank says nothing",
        "A rank's collectives cannot be read, so that it can neither be blamed nor cleared.",
        "The exporter's collector errors on the node, then whether the process runs.",
    ),
    "compute_straggler": (
        "a rank computes more slowly",
        "A rank arrives last at its collectives: the others wait for its computation.",
        "Clocks, temperature and throttling of its GPU, other processes on its host, its data "
        "loader.",
    ),
    "communication_straggler": (
        "a rank communicates more slowly",
        "The collectives of a rank's groups take longer than those of the same groups elsewhere.",
        "Speed, errors and path of the node's NICs; then a test of a pair of nodes.",
    ),
}


def meaning_of_class(name: ClassName) -> Meaning:
    """Return the meaning of a class of verdicts; its family is the class's name."""
    return Meaning(name, *_TEXTS[name])
