"""What a training job itself says: the verdicts on its ranks, collectives and spans."""

from __future__ import annotations

from links import column_to
from parts import RED, Panel, properties, rows, value_map

_WHO = "cluster, job_id, node, rank, class"
_SHOWN = 50


def table(matchers: str) -> Panel:
    """Return the verdicts that stand, with what speaks for each in words."""
    verdict = f"max by ({_WHO}, domain, confidence, action) (peerwatch_diagnosis{{{matchers}}})"
    # Two detectors put the same verdict into different words: either will do.
    info = f"topk by ({_WHO}) (1, peerwatch_diagnosis_info{{{matchers}}})"
    columns = {
        "class": "Class",
        "cluster": "Cluster",
        "job_id": "Job",
        "node": "Node",
        "rank": "Rank",
        "summary": "What the job says",
        "domain": "Domain",
        "confidence": "Confidence",
        "action": "Action",
        "Value": "Stands",
    }
    panel = rows(
        "What the job itself says",
        "Verdicts from the job's own evidence: processes of its ranks, collectives, spans. One "
        f"that names a node and is sure or likely is a finding as well. At most {_SHOWN}.",
        columns,
        f"topk({_SHOWN}, {verdict}) * on ({_WHO}) group_left (summary) {info}",
    )
    return (
        panel.no_value("Nothing is wrong, or the job says nothing.")
        .height(5)
        .override_by_name("What the job says", properties({"custom.minWidth": 420}))
        .override_by_name("Stands", properties({"mappings": value_map(("1", "yes", RED))}))
        .override_by_name("Job", column_to("job", job_id="Job", node="Node"))
        .override_by_name("Node", column_to("node", job_id="Job", node="Node"))
    )
