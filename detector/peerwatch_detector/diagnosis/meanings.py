"""What the classes of a verdict, and symptoms of roots, mean to a person; what to check first."""

from __future__ import annotations

from peerwatch_detector.detection.explanation.fault_families import FAMILIES, Meaning
from peerwatch_detector.diagnosis.verdict import ClassName, Symptom

_STACK = "The stack of the rank's process on the node (py-spy dump), and its last log lines."

# By class: in a few words, in a sentence, what to check first.
_TEXTS: dict[ClassName | Symptom, tuple[str, str, str]] = {
    "fatal_line": (
        "a log has a fatal error of its host",
        "A rank, or the kernel, wrote that a GPU, a NIC or the host failed, and the job has not "
        "gone on since.",
        "The line itself, in the rank's log or dmesg, then the device that it names.",
    ),
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
    # What a root is a case of.
    "gpu_unavailable": (
        "a GPU is gone",
        "A GPU of the node can no longer be used.",
        "The XID lines of the kernel log, then nvidia-smi and the slot's PCIe link.",
    ),
    "gpu_memory": (
        "a GPU's memory fails",
        "The memory of a GPU has errors that it cannot correct, or no spare rows left.",
        "Remapped rows and error counters of the GPU (nvidia-smi -q).",
    ),
    "gpu_driver": (
        "a GPU's driver or firmware fails",
        "The driver or the firmware of a GPU does not answer.",
        "The XID and NVRM lines of the kernel log; then restart the driver, or the node.",
    ),
    "nvlink": (
        "an NVLink fails",
        "A link between GPUs, or a switch of them, has fatal errors.",
        "NVLink error counters (nvidia-smi nvlink -e) and SXID lines of the kernel log.",
    ),
    "infiniband_link": (
        "an RDMA link fails",
        "A link of the node's RDMA network fell, or loses packets.",
        "State and error counters of the port, then cable and switch port.",
    ),
    "ethernet_link": (
        "an Ethernet link fails",
        "A link of the node's Ethernet network fell.",
        "The state of the interface, then cable and switch port.",
    ),
    "pcie": (
        "a PCIe device fails",
        "A PCIe link of the node has errors, or came up slower than it can.",
        "AER lines of the kernel log, and the link's speed and width (lspci -vv).",
    ),
    "main_memory": (
        "main memory fails",
        "The node's memory has errors that it cannot correct.",
        "Machine-check lines of the kernel log, then the controller's event log.",
    ),
    "disk": (
        "a disk fails",
        "A disk of the node is full, read-only or has errors.",
        "The kernel log's lines about the device, then free space and SMART.",
    ),
    "power": (
        "power is lost or limited",
        "The node, or a part of it, lacks power.",
        "Power supplies and sensors in the controller's event log.",
    ),
    "thermal": (
        "it is too hot",
        "A part of the node is too hot and slowed down, or switched off.",
        "Temperatures, fans and inlet air of the node.",
    ),
    "node_gone": (
        "the node is gone",
        "The node no longer answers.",
        "Its console and power, from its management controller.",
    ),
    "system_service": (
        "a service of the system fails",
        "A service that the job needs on the node failed, or a process was killed from outside.",
        "The journal of the node around that time.",
    ),
    "filesystem_mount": (
        "a file system fails",
        "A file system that the job uses does not answer, or is not mounted.",
        "The mount on the node, then the storage's own health.",
    ),
    "configuration": (
        "the node is set up otherwise",
        "The node has a setting that the job's other nodes do not have.",
        "The table of configurations on the job's dashboard; then put the node right.",
    ),
    "oom": (
        "memory ran out",
        "A process of the job was killed, or failed, for lack of memory.",
        "What the job's processes and others on the node use of memory.",
    ),
    "user_code": (
        "the program failed",
        "The training program ended with an error of its own.",
        "The first exception in the ranks' logs, with the owner of the job.",
    ),
    "platform": (
        "the scheduler ended the job",
        "The job was cancelled, ran out of time, or gave way to another.",
        "The scheduler's record of the job.",
    ),
    "nccl_timeout": (
        "collectives time out",
        "Collectives ran into their time limit; it is open what held them up.",
        "The rank that is waited for: its stack and its node's log.",
    ),
    "hang": (
        "the job stands",
        "Ranks wait for one that does not come.",
        _STACK,
    ),
    "slow": (
        "the job is slowed down",
        "A node holds the others up.",
        "Clocks, throttling and links of the node, compared with its peers.",
    ),
    "unknown": (
        "the cause is open",
        "Something stands against the job, and what was observed does not tell what.",
        "The checks that the diagnosis proposes.",
    ),
    "traffic_stopped": (
        "traffic has stopped",
        "The nodes of a job that should run send next to nothing: all wait for one of them.",
        "Which node's metrics changed first, then the ranks' logs for a collective that hangs.",
    ),
    "traffic_fallen": (
        "traffic has fallen",
        "A job, or a node unlike its peers, sends less than half of what it usually does.",
        "Pause frames, congestion marks and link speeds of the fabric; for a node those of its "
        "ports.",
    ),
    "traffic_irregular": (
        "traffic has lost its rhythm",
        "Traffic no longer repeats itself with every step, as it usually does.",
        "What else uses the network, retransmissions, and whether steps take unequal times.",
    ),
}


def meaning_of_class(name: ClassName | Symptom) -> Meaning:
    """Return the meaning of a class of verdicts, or of a symptom; its family is its name."""
    return Meaning(name, *_TEXTS[name])


def meaning_named(family: str) -> Meaning | None:
    """Return the meaning whose family is published with findings; None if there is none."""
    found = next((each.meaning for each in FAMILIES if each.meaning.family == family), None)
    if found is not None:
        return found
    texts = {str(name): text for name, text in _TEXTS.items()}.get(family)
    return None if texts is None else Meaning(family, *texts)
