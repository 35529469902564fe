"""How a run of the fleet ended: each fault with its page and diagnosis, and whether it is right.

Pure functions of what was observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from peerwatch_demo.fleet.plan import Plan, PlannedFault
from peerwatch_demo.stack import report
from peerwatch_demo.stack.webhook import Notification


def verdict_of(plan: Plan, injected: float, pages: Sequence[Notification]) -> report.Verdict:
    """Say whether one page came about every faulty node, and no other."""
    faulty = [fault.node for fault in plan.faults]
    if len(faulty) == 1:
        return report.evaluate(faulty[0], injected, pages)
    return report.evaluate_each(faulty, injected, pages)


def fault_text(
    fault: PlannedFault,
    events: Sequence[report.Event],
    pages: Sequence[Notification],
    job: Mapping[str, Any] | None,
) -> str:
    """Return what became of a fault: the table of its way to the page, the page, the diagnosis.

    Parameters
    ----------
    fault
        Which.
    events, pages
        All of the run.
    job
        What the detector says of its training job (``/api/v1/jobs``); None if it says nothing.
    """
    of_node = [event for event in events if event.node == fault.node]
    told = (
        alert.description
        for page in pages
        for alert in page.firing()
        if alert.labels.get("node") == fault.node
    )
    return "\n".join(
        (
            f"{fault.name} on {fault.node}, job {fault.job_id}",
            report.table(of_node),
            f"page:       {next(told, 'none came')}",
            f"diagnosis:  {diagnosis(fault.node, job)}",
        )
    )


def diagnosis(node: str, job: Mapping[str, Any] | None) -> str:
    """Return why a node is at fault by what the detector says of its job, in a sentence.

    What the job itself says comes first, then what it fails of, then the finding's explanation.
    """
    if job is None:
        return "the detector says nothing of this job"
    said = [each["summary"] for each in job.get("diagnoses", ()) if each["node"] == node]
    root = job.get("root") or {}
    causes = [each["summary"] for each in root.get("causes", ()) if node in each["nodes"]]
    why = [each.get("explanation") or {} for each in job["findings"] if each["node"] == node]
    found = [each["sentence"] for each in why if each.get("sentence")]
    return next(iter((*causes, *said, *found)), "none")
