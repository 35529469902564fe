"""What became of each of a fleet's faults, in words."""

from __future__ import annotations

from typing import Any

import pytest

from peerwatch_demo.fleet.outcome import diagnosis, fault_text, verdict_of
from peerwatch_demo.fleet.plan import make_plan
from peerwatch_demo.stack.report import Event
from peerwatch_demo.stack.webhook import Alert, Notification

PLAN = make_plan(64, "", "1")


def page(node: str, arrived: float = 130.0) -> Notification:
    alert = Alert("firing", {"node": node}, {"description": f"{node} is\n  at fault."})
    return Notification("/page", arrived, "firing", {}, (alert,))


def job(**said: Any) -> dict[str, Any]:
    return {"diagnoses": [], "root": None, "findings": [], **said}


def test_a_page_for_every_fault_is_right_and_one_missing_is_not() -> None:
    pages = [page(fault.node) for fault in PLAN.faults]

    assert verdict_of(PLAN, 100.0, pages).right
    assert not verdict_of(PLAN, 100.0, pages[1:]).right


def test_a_single_fault_is_evaluated_by_its_only_page() -> None:
    plan = make_plan(8, "lost_gpu", "1")

    verdict = verdict_of(plan, 100.0, [page(plan.faults[0].node)])

    assert verdict.right
    assert "one page came, and it named" in verdict.sentence


def test_each_fault_has_its_own_events_page_and_diagnosis() -> None:
    fault, other, _ = PLAN.faults
    events = [Event("fault", 100.0, each.node) for each in PLAN.faults]
    events += [Event("finding", 120.0, fault.node, "pfc"), Event("finding", 121.0, other.node)]
    events += [Event("page", 130.0, fault.node, "pfc")]
    found = job(findings=[{"node": fault.node, "explanation": {"sentence": "It pauses."}}])

    text = fault_text(fault, events, [page(other.node), page(fault.node)], found)

    assert text.startswith(f"{fault.name} on {fault.node}, job {fault.job_id}\n")
    assert f"page:       {fault.node} is at fault.\ndiagnosis:  It pauses." in text
    assert other.node not in text
    assert "30.0 s" in text


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (None, "the detector says nothing of this job"),
        (job(), "none"),
        (job(findings=[{"node": "a", "explanation": None}]), "none"),
        (job(diagnoses=[{"node": "a", "summary": "rank 1 hangs"}]), "rank 1 hangs"),
        (job(diagnoses=[{"node": "b", "summary": "rank 1 hangs"}]), "none"),
        (
            job(
                root={"causes": [{"nodes": ["a"], "summary": "drain a"}]},
                diagnoses=[{"node": "a", "summary": "rank 1 hangs"}],
            ),
            "drain a",
        ),
    ],
)
def test_the_diagnosis_is_what_speaks_most_directly(
    said: dict[str, Any] | None, expected: str
) -> None:
    assert expected == diagnosis("a", said)
