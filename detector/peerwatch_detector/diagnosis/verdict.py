"""What a diagnoser says about a job: which class of fault, on whom, how sure, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from peerwatch_detector.detection.findings import Severity

ClassName = Literal[
    # What a log says of its own host.
    "fatal_line",
    # The process of a rank.
    "rank_exited",
    "rank_zombie",
    "rank_stopped",
    # A collective that does not end.
    "not_launched",
    "launched_not_started",
    "mismatch",
    "call_order",
    "network_stuck",
    "no_data",
    # A collective that ends late.
    "compute_straggler",
    "communication_straggler",
    # Traffic of the job, or of a node unlike its peers'.
    "traffic_stopped",
    "traffic_fallen",
    "traffic_irregular",
]
# What a root is a case of: the rows of Meta's taxonomy, and what it has no row for.
Symptom = Literal[
    "gpu_unavailable",
    "gpu_memory",
    "gpu_driver",
    "nvlink",
    "infiniband_link",
    "ethernet_link",
    "pcie",
    "main_memory",
    "disk",
    "power",
    "thermal",
    "node_gone",
    "system_service",
    "filesystem_mount",
    "configuration",
    "oom",
    "user_code",
    "platform",
    "nccl_timeout",
    "hang",
    "slow",
    "unknown",
]
# Whose it is, after Meta's taxonomy: the training program's, the system software's, the hardware's;
# none: nobody's fault; unknown: it may be several's.
Domain = Literal["user", "software", "hardware", "none", "unknown"]
Confidence = Literal["sure", "likely", "undecided"]
# Take the node out and start the job again; do so and replace the part; take it out when the job
# ends; only start the job again; ask the job's owner; have a person examine it; nothing.
Action = Literal["isolate", "replace", "drain", "restart", "ask", "inspect", "none"]

CLASS_NAMES: tuple[ClassName, ...] = get_args(ClassName)
SYMPTOMS: tuple[Symptom, ...] = get_args(Symptom)

_SEVERITIES: dict[Action, Severity] = {
    "isolate": "critical",
    "replace": "critical",
    "drain": "warning",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """One fault of one job, from the job's own evidence, or what the job failed of.

    Parameters
    ----------
    job_id
        The scheduler's id of the job.
    node, rank
        Whom it is about; ``node`` is empty where nobody is named, ``rank`` None where it is no
        single rank.
    class_name
        What kind of fault it is; a symptom where it is the root.
    domain
        Whose it is.
    confidence
        How strong the evidence is.
    action
        What to do.
    summary
        One sentence for a person, with ranks, nodes and numbers.
    victims
        Ranks that only wait for the fault, in ascending order; they are never named.
    start_time
        Unix time at which it began.
    """

    job_id: str
    node: str
    rank: int | None
    class_name: ClassName | Symptom
    domain: Domain
    confidence: Confidence
    action: Action
    summary: str
    victims: tuple[int, ...]
    start_time: float

    @property
    def is_root(self) -> bool:
        """Whether it says what the job failed of, from all that was observed."""
        return self.class_name in SYMPTOMS

    @property
    def names_node(self) -> bool:
        """Whether it says that a node is at fault."""
        return self._stands_on_node and self.domain not in ("user", "none")

    @property
    def severity(self) -> Severity | None:
        """How urgent the finding is that it makes; None if it makes none.

        A node at fault is critical. A rank that ended is a finding whosever fault it is, since the
        others wait for it: a warning where its program failed. Of a root it is as urgent as what
        is to be done.
        """
        if self.is_root:
            return _SEVERITIES.get(self.action) if self._stands_on_node else None
        if self.names_node:
            return "critical"
        if self._stands_on_node and self.class_name in ("rank_exited", "rank_zombie"):
            return "warning" if self.domain == "user" else "critical"
        return None

    @property
    def _stands_on_node(self) -> bool:
        return bool(self.node) and self.confidence in ("sure", "likely")
