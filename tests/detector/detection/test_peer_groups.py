"""Nodes that differ by design are compared with those of their own role only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from detector.fakes import START, FakeClock, FakeReader, Replay, config_for, node_names
from detector.small_case import write_case
from detector.training_job import FAULT, changed, training
from detector.training_job import replay as replay_of
from detector.world import ONSET as WORLD_ONSET
from detector.world import World
from peerwatch_common.errors import ConfigError
from peerwatch_detector.backtest.cases import load_case, save_case
from peerwatch_detector.backtest.replay import replay
from peerwatch_detector.config import DetectorConfig, load_config
from peerwatch_detector.errors import CaseError
from peerwatch_detector.jobs import Job
from peerwatch_detector.models.store import EMPTY
from peerwatch_detector.service.detector import Detector

ONSET, SECONDS = 700, 1300
NODES = 9
STAGES = {node: f"stage-{index // 3}" for index, node in enumerate(node_names(NODES))}


def staged(seed: int = 0) -> np.ndarray:
    """Return the load of three stages, each with a slow curve of its own."""
    rng = np.random.default_rng(seed)
    time = np.arange(SECONDS)
    curve = [0.6 + 0.15 * np.sin(time / 97 + 1), 0.4 + 0.1 * np.sin(time / 61), 0.5 + 0 * time]
    values = np.repeat(np.array(curve), 3, axis=0) + rng.normal(0, 0.01, (NODES, SECONDS))
    return values.astype(np.float32)


def nodes_found(values: np.ndarray, roles: dict[str, str], **settings: object) -> list[str]:
    here = Replay(config_for(peerwatch=settings), {"load": values}, roles=roles)
    return [finding.node for finding in here.run()]


def test_stages_that_go_their_own_way_are_quiet_when_compared_among_themselves() -> None:
    assert [] == nodes_found(staged(), STAGES)


def test_a_node_that_leaves_its_own_stage_is_named_wherever_the_other_stages_are() -> None:
    values = staged()
    values[4, ONSET:] += 0.25
    assert ["node-04"] == nodes_found(values, STAGES)


def test_a_node_that_does_not_go_with_its_stage_is_hidden_among_all() -> None:
    values = staged()
    values[[3, 5], ONSET:] += 0.25
    assert ["node-04"] == nodes_found(values, STAGES)
    without = nodes_found(values, STAGES, peer_groups=False)
    assert without == nodes_found(values, {})
    assert "node-04" not in without


def test_what_a_whole_stage_does_has_a_common_cause() -> None:
    values = staged()
    values[3:6, ONSET:] += 0.25
    assert [] == nodes_found(values, STAGES)


@pytest.mark.parametrize(
    ("congested", "expected"), [(slice(5, 6), ["node-05"]), (slice(5, 9), [])], ids=["one", "many"]
)
def test_congestion_that_ends_in_the_midst_of_a_stage_names_nobody(
    congested: slice, expected: list[str]
) -> None:
    """All of the last stage feel it, and one node of the stage before, alone among its peers."""
    values = training(1200, slower=0.1, nodes=NODES)
    changed(values, "ecn_rate", congested, 6.0, FAULT)
    here = replay_of(values)
    here.roles = STAGES
    assert expected == [finding.node for finding in here.run()]


def test_the_parts_of_a_job_in_which_all_do_the_same_give_what_no_roles_give() -> None:
    values = staged()
    values[4, ONSET:] += 0.25
    same_role = dict.fromkeys(STAGES, "worker")
    assert nodes_found(values, {}) == nodes_found(values, same_role)


def test_a_role_of_too_few_nodes_is_compared_with_all() -> None:
    rng = np.random.default_rng(1)
    values = (0.5 + rng.normal(0, 0.01, (NODES, SECONDS))).astype(np.float32)
    values[8, ONSET:] += 0.25
    roles = dict.fromkeys(node_names(7), "worker") | {"node-07": "server", "node-08": "server"}
    assert ["node-08"] == nodes_found(values, roles)


def test_groups_are_the_roles_with_enough_nodes_in_order() -> None:
    job = Job("job-1", ("a", "b", "c", "d", "e"), roles={"d": "y", "a": "x", "c": "x", "b": "x"})
    assert {"x": ("a", "b", "c")} == job.groups(3)
    assert {"x": ("a", "b", "c"), "y": ("d",)} == job.groups(1)
    assert {} == Job("job-1", ("a", "b")).groups(1)


def test_the_explanation_speaks_of_the_peers_of_the_nodes_own_role() -> None:
    values = staged()
    values[7, ONSET:] += 0.25
    here = Replay(config_for(), {"load": values}, roles=STAGES)
    (finding,) = here.run()
    (shown,) = here.state.explanations[finding].metrics
    assert ("node-07", "load") == (finding.node, shown.metric)
    assert pytest.approx(0.5, abs=0.02) == shown.median
    assert pytest.approx((0.5, 0.5), abs=0.03) == (shown.low, shown.high)


def test_a_node_that_changes_its_role_begins_without_a_past_there() -> None:
    values = staged()
    values[5, ONSET:] = values[6, ONSET:]
    here = Replay(config_for(), {"load": values}, roles=STAGES)
    here.run(ONSET)
    here.roles = STAGES | {"node-05": "stage-2"}
    assert [] == here.run()
    learned = here.metrics["load"].roles
    assert {"stage-0": 3, "stage-2": 4} == {
        role: len(baseline.nodes) for role, baseline in learned.items()
    }


@pytest.mark.parametrize("settings", [{"role_label": "stage"}, {"role_pattern": "^(.)"}], ids=str)
def test_the_service_learns_roles_from_a_label_or_the_nodes_names(settings: dict) -> None:
    config = config_for(peers=settings)
    clock = FakeClock()
    reader = FakeReader(clock, config)
    names = tuple(f"{stage}-{index}" for stage in "ab" for index in range(3))
    values = 0.5 + np.random.default_rng(0).normal(0, 0.01, (6, 3000))
    reader.add_job("job-1", {"load": values.astype(np.float32)}, names, START)
    reader.roles = {("job-1", name): name[0] for name in names}
    here = World(config, clock, reader, Detector(config, reader, EMPTY, clock))
    here.run(60)
    (detection,) = here.detector.snapshot.detections
    wanted = {name: name[0] for name in names}
    assert wanted == detection.job.roles
    reader.remove_node("job-1", "b-2", clock.now)
    here.run(30)
    assert wanted == here.detector.snapshot.detections[0].job.roles


def test_a_restart_in_mid_fault_does_not_take_the_fault_for_the_nodes_usual_level() -> None:
    config = config_for(peers={"role_pattern": "^(.)"})
    clock = FakeClock()
    reader = FakeReader(clock, config)
    names = tuple(f"{stage}-{index}" for stage in "ab" for index in range(4))
    values = 0.5 + np.random.default_rng(0).normal(0, 0.01, (8, 4000))
    values[5, WORLD_ONSET:] += 0.3
    reader.add_job("job-1", {"load": values.astype(np.float32)}, names, START)
    here = World(config, clock, reader, Detector(config, reader, EMPTY, clock))
    here.run(WORLD_ONSET + 1500)
    before = here.findings()
    assert ["b-1"] == [finding[1] for finding in before]
    here.restart()
    here.run(1200)
    assert before == here.findings()


def test_a_case_keeps_its_roles(tmp_path: Path) -> None:
    folder = write_case(tmp_path / "one", roles={"node-00": "first", "node-01": "first"})
    case = load_case(folder)
    assert {"node-00": "first", "node-01": "first"} == case.roles
    save_case(case, tmp_path / "two")
    assert case.roles == load_case(tmp_path / "two").roles
    with pytest.raises(CaseError, match=r"case\.json: roles name \['x'\], not nodes of the job"):
        load_case(write_case(tmp_path / "three", roles={"x": "first"}))


def test_the_backtest_uses_the_roles_of_the_case(tmp_path: Path) -> None:
    values = staged() * 100
    values[4, ONSET:] += 25
    folder = write_case(
        tmp_path / "one",
        nodes=NODES,
        seconds=SECONDS,
        arrays={
            "cpu_usage": values,
            "gpu_duty_cycle": np.full((NODES, 2, SECONDS), 99.0),
            "unheard_of": values,
        },
        roles=STAGES,
    )
    # No GPU tells of the job's progress here: high load alone then counts as any other metric.
    config = DetectorConfig.model_validate({"metrics": {"enabled": ["cpu_usage"]}})
    assert ["node-04"] == [
        finding.node for finding in replay(load_case(folder), config, EMPTY).findings
    ]


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("role_pattern", "(", "peers.role_pattern: '(' is not a regular expression: "),
        ("role_pattern", "a", "peers.role_pattern: 'a' has 0 groups; the one group of it is "),
        ("role_label", "no label", "peers.role_label: string should match pattern"),
    ],
)
def test_a_role_that_cannot_be_told_is_refused(
    tmp_path: Path, setting: str, value: str, message: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"peers: {{{setting}: '{value}'}}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    (mistake,) = caught.value.mistakes
    assert mistake.startswith(message)
