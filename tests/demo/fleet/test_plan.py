"""What a person may choose of a fleet, and what follows from it."""

from __future__ import annotations

import pytest

from peerwatch_demo.fleet import __main__ as entry
from peerwatch_demo.fleet.plan import FAULTS, Plan, PlanError, fleet_size, make_plan
from peerwatch_demo.job.timeline import Phase
from peerwatch_demo.simulated_node.scenarios import SCENARIOS


@pytest.mark.parametrize("text", ["8", " 64 ", "256"])
def test_a_fleet_has_8_to_256_nodes(text: str) -> None:
    assert int(text) == len(make_plan(fleet_size(text), "", "").nodes)


@pytest.mark.parametrize("text", ["7", "257", "-8", "64.0", "many", "", "9" * 30])
def test_any_other_size_is_refused_with_both_limits(text: str) -> None:
    with pytest.raises(PlanError, match="from 8 to 256") as refused:
        fleet_size(text)

    assert repr(text) in str(refused.value)


@pytest.mark.parametrize("name", ["slow_nic", "healthy", "waiting", "idle"])
def test_what_is_no_fault_of_the_fleet_is_refused_with_the_list(name: str) -> None:
    with pytest.raises(PlanError) as refused:
        make_plan(8, name, "")

    assert repr(name) in str(refused.value)
    assert all(fault in str(refused.value) for fault in FAULTS)


@pytest.mark.parametrize(
    "environment", [{"FLEET": "3"}, {"FLEET": "8", "FAULT": "x"}], ids=["size", "fault"]
)
def test_wrong_use_exits_with_2(environment, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == entry.main(environment)

    printed = capsys.readouterr()
    assert "" == printed.out
    assert next(iter(environment)) in printed.err or "FAULT" in printed.err


@pytest.mark.parametrize("size", range(8, 257, 31))
def test_every_job_can_be_compared_and_nodes_have_names_of_their_own(size: int) -> None:
    plan = make_plan(size, "", "")

    assert size == sum(plan.jobs.values()) == len({node.name for node in plan.nodes})
    assert 3 <= min(plan.jobs.values())
    assert {fault.job_id for fault in plan.faults} == plan.jobs.keys()


def test_without_a_choice_each_job_has_a_fault_of_another_kind() -> None:
    plan = make_plan(64, "", "1")

    assert 3 == len({fault.name for fault in plan.faults})
    assert {fault.job_id for fault in plan.faults} == plan.jobs.keys()
    for fault in plan.faults:
        hit = [
            node
            for node in plan.nodes
            if plan.scenario(node).summary == SCENARIOS[fault.name].summary
        ]
        assert [(fault.node, fault.job_id)] == [(node.name, node.job_id) for node in hit]


def test_the_smallest_fleet_has_one_job_and_one_fault() -> None:
    assert 1 == len(make_plan(8, "", "1").faults)


def test_equal_seeds_make_the_same_node_faulty() -> None:
    drawn = {make_plan(64, "lost_gpu", str(seed)).faults[0].node for seed in range(40)}

    assert make_plan(64, "", "7") == make_plan(64, "", "7")
    assert 10 < len(drawn)


@pytest.mark.parametrize("fault", list(FAULTS))
def test_one_node_has_the_fault_and_its_job_goes_at_its_speed(fault: str) -> None:
    plan = make_plan(64, fault, "1")
    (planned,) = plan.faults
    others = [node for node in plan.nodes if node.name != planned.node]
    (faulty,) = set(plan.nodes) - set(others)

    assert SCENARIOS[fault].summary == plan.scenario(faulty).summary
    for node in others:
        scenario = plan.scenario(node)
        work = (scenario.phase, scenario.speed)
        in_job = node.job_id == planned.job_id
        expected = (
            (SCENARIOS[fault].phase, SCENARIOS[fault].speed) if in_job else (Phase.TRAIN, 1.0)
        )
        assert expected == work
        assert (scenario.gpus, scenario.nics, scenario.xids) == ((), (), ())


@pytest.mark.parametrize("fault", ["", "lost_gpu"])
def test_a_plan_survives_the_way_to_another_process(fault: str) -> None:
    plan = make_plan(64, fault, "1")

    assert plan == Plan.from_json(plan.to_json())


def test_the_introduction_says_what_is_simulated_and_what_is_shortened() -> None:
    text = entry.introduction(make_plan(64, "hung_rank", "1"))

    assert "64 simulated nodes with 512 GPUs, and their last 15 minutes" in text
    assert "20 s here, 240 s in production" in text
    assert "llm-pretrain (32 nodes), vision (20 nodes), eval (12 nodes)" in text
