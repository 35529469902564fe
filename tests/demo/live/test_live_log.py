"""What a live run counts as: right node, right class, how soon; and the file it is kept in."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, get_args

import pytest

from peerwatch_demo.live.__main__ import draw, main
from peerwatch_demo.live.faults import FAULTS, FAULTS_VARIABLE, chosen
from peerwatch_demo.live.log import HEALTH, Run, RunLog, Said, table
from peerwatch_demo.live.run import Listener
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.diagnosis.verdict import ClassName


def said(
    kind: str, class_name: str, node: str = "node-3", seconds: float = 20.0, **more: Any
) -> Said:
    values: dict[str, Any] = {"rank": None, "confidence": "sure"} | more
    return Said(seconds, kind, node, values["rank"], class_name, values["confidence"])


def run(*items: Said, fault: str = "kill_9", blames_node: bool = True, **more: Any) -> Run:
    classes = more.get("classes", ("rank_exited",))
    return Run(fault, more.get("repeat", 1), 6, "node-3", classes, blames_node, 60.0, items)


RIGHT = (said("verdict", "rank_exited", seconds=12.0), said("finding", "rank_exited"))


@pytest.mark.parametrize(
    ("found", "node", "class_", "delay"),
    [
        (run(*RIGHT), True, True, 20.0),
        (run(), False, False, None),
        # Right and one too many.
        (run(*RIGHT, said("finding", "cpu_usage", "node-1")), False, True, 20.0),
        # The node by another sign than its own.
        (run(said("finding", "cpu_usage")), True, False, 20.0),
        # The class of another node is not right.
        (run(said("verdict", "rank_exited", "node-1")), False, False, None),
        # Nobody is to blame for a mistake in the code of all.
        (
            run(said("verdict", "mismatch", "", 31.0), blames_node=False, classes=("mismatch",)),
            True,
            True,
            31.0,
        ),
        (
            run(
                said("verdict", "mismatch", "", 31.0),
                said("finding", "heartbeat_age"),
                blames_node=False,
                classes=("mismatch",),
            ),
            False,
            True,
            31.0,
        ),
    ],
)
def test_what_counts_as_right(found: Run, node: bool, class_: bool, delay: float | None) -> None:
    assert (found.right_node, found.right_class, found.delay_seconds) == (node, class_, delay)


def test_the_table_has_a_row_per_fault_all_and_health() -> None:
    health = Run(
        HEALTH,
        1,
        8,
        "",
        (),
        False,
        3600.0,
        (said("verdict", "no_data", "", confidence="undecided"),),
    )
    rows = table([run(*RIGHT), run(repeat=2), run(fault="sigstop"), health]).splitlines()
    assert "| kill_9 | 2 | 1 | 1 | 20 / 20 |" in rows
    assert "| sigstop | 1 | 0 | 0 | - |" in rows
    assert "| all | 3 | 1 | 1 | 20 / 20 |" in rows
    assert rows[-1].endswith("60 minutes of 8 ranks with checkpoints, evaluations and pauses: 0 "
                             "findings and verdicts.")  # fmt: skip


def test_lines_are_kept_and_a_broken_last_line_is_cut_away(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    log = RunLog(path)
    log.add(run(*RIGHT))
    with path.open("a") as file:
        file.write('{"fault": "sigs')
    again = RunLog(path)
    again.load()
    assert again.runs == [run(*RIGHT)]
    assert again.has("kill_9", 1)
    assert not again.has("kill_9", 2)
    assert path.read_text().count("\n") == 1
    path.write_text('{"fault": 1}\n')
    assert main([str(path)]) == 2


def test_faults_are_known_and_their_classes_exist() -> None:
    names = [fault.name for fault in chosen(None, namespaces=True)]
    assert len(names) == len(set(names)) >= 16
    assert not any(fault.needs_namespaces for fault in chosen(None, namespaces=False))
    metrics = {metric.name for metric in DetectorConfig().detection_metrics()}
    assert {name for fault in FAULTS for name in fault.classes} <= metrics | set(
        get_args(ClassName)
    )
    with pytest.raises(ValueError, match="'slow_nic' is no fault that works here"):
        chosen(["slow_nic"], namespaces=False)


def test_the_same_seed_draws_the_same_nodes() -> None:
    drawn = [draw("70000", fault.name, repeat) for fault in FAULTS for repeat in (1, 2, 3)]
    assert drawn == [draw("70000", fault.name, repeat) for fault in FAULTS for repeat in (1, 2, 3)]
    assert {ranks for ranks, _ in drawn} == {4, 5, 6, 7, 8}
    assert all(place < ranks for ranks, place in drawn)


def test_the_job_knows_every_fault_of_its_own_code() -> None:
    source = (Path(__file__).parents[3] / "detector/peerwatch_demo/live/train.py").read_text()
    texts = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    own = set(texts) & {fault.name for fault in FAULTS}
    outside = {
        *("kill_9", "sigstop", "sigstop_duty_cycle", "starved_of_cpu"),
        *("slow_nic", "lossy_nic", "throttled_nic"),
    }
    assert own == {fault.name for fault in FAULTS} - outside
    assert FAULTS_VARIABLE in texts


@pytest.mark.parametrize("ranks", range(2, 12))
def test_each_rank_of_the_job_has_a_neighbour(ranks: int) -> None:
    pytest.importorskip("torch")
    from peerwatch_demo.live.train import neighbours

    groups = neighbours(ranks)
    assert [rank for group in groups for rank in group] == list(range(ranks))
    assert all(len(group) in {2, 3} for group in groups)
    assert all(rank in groups[min(rank // 2, len(groups) - 1)] for rank in range(ranks))


def test_what_the_detector_says_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = {"node": "n", "metric": "rank_exited", "severity": "critical"}
    verdict = {"node": "n", "rank": 2, "class": "rank_exited", "confidence": "sure"}
    answers: list[Any] = [
        None,
        {"jobs": [{"findings": [], "diagnoses": [verdict]}]},
        {"jobs": [{"findings": [finding], "diagnoses": [verdict]}]},
    ]
    monkeypatch.setattr("peerwatch_demo.live.run.fetch_json", lambda url: answers.pop(0))
    listener = Listener("http://d")
    listener.begin(0.0)
    assert [[item.kind for item in listener.poll()] for _ in range(3)] == [
        [],
        ["verdict"],
        ["finding"],
    ]
