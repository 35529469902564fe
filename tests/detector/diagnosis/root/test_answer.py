"""``diagnose CASE`` prints what to do, why, how it was found, and what is missing."""

import json
from pathlib import Path

import pytest

from detector.diagnosis.root.failed_job import (
    GPUS,
    NODES,
    ev,
    lost_connection,
    timeouts,
)
from peerwatch_detector.__main__ import main
from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence

FAILED = [
    ev(96, "xid", "79", "n3", gpu="3", text="\x1b[31mfell \ud800off"),
    *lost_connection("n3", 100),
]


def write(folder: Path, events: list[Evidence]) -> Path:
    folder.mkdir()
    about = {
        "name": folder.name,
        "job_id": "7",
        "seconds": 3600,
        "nodes": list(NODES),
        "gpus_per_node": GPUS,
        "events": [each.to_json() for each in events],
    }
    (folder / "case.json").write_text(json.dumps(about))
    return folder


def test_a_person_reads_what_to_do_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["diagnose", str(write(tmp_path / "bus", FAILED))])

    out = capsys.readouterr().out
    lines = out.splitlines()
    assert "bus, job 7:" == lines[0]
    assert lines[1].startswith(
        "Isolate n3 and restart: GPU 3 fell off the bus (XID 79), 4 s before"
    )
    assert "  gpu_unavailable, hardware, permanent, sure, action isolate" == lines[2]
    assert "  for: 96.0 s xid 79 (n3, GPU 3): \\x1b[31mfell \\ud800off" in lines
    assert "  CriticalError: n3: gpu_off_bus" in lines
    assert "\x1b" not in out


def test_pairs_that_lose_packets_are_counted_as_pairs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [(a, b) for a in range(4) for b in range(4, 8)]
    lost = [
        ev(5, "reach", "lost", NODES[a], peer_node=NODES[b])
        for pair in pairs
        for a, b in (pair, pair[::-1])
    ]
    folder = write(tmp_path / "leaf", [ev(0, "step", "stalled"), *lost, *timeouts(600)])
    about = json.loads((folder / "case.json").read_text())
    about["places"] = {node: {"leaf": f"l{i // 4}"} for i, node in enumerate(NODES)}
    (folder / "case.json").write_text(json.dumps(about))

    assert 0 == main(["diagnose", str(folder)])
    assert "Examine leaf l0 before a restart: 16 pairs of nodes lose packets" in (
        capsys.readouterr().out
    )


def test_a_program_reads_the_same_and_what_to_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [
        write(tmp_path / "bus", FAILED),
        write(tmp_path / "open", [ev(0, "step", "stalled"), *timeouts(600)]),
        write(tmp_path / "healthy", [ev(0, "step", "first")]),
    ]
    assert 0 == main(["diagnose", "--json", *map(str, folders)])

    bus, undecided, healthy = map(json.loads, capsys.readouterr().out.splitlines())
    (cause,) = bus["causes"]
    assert (["n3"], "isolate", 96.0) == (cause["nodes"], cause["action"], cause["time_seconds"])
    assert {"time": 96.0, "kind": "xid", "name": "79", "node": "n3", "gpu": "3"} == {
        key: value for key, value in cause["speaks_for"][0].items() if key != "text"
    }
    assert "full" == undecided["checks"][0]["check"]
    assert any("Where nodes stand is not known" in text for text in undecided["missing"])
    assert [] == healthy["causes"]


def test_at_leaves_out_what_was_seen_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["diagnose", "--at", "50", str(write(tmp_path / "bus", FAILED))])
    assert "Nothing is wrong with the job" in capsys.readouterr().out


@pytest.mark.parametrize("at", [[], ["--at", "50"]])
def test_a_case_without_events_says_that_nothing_was_observed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], at: list[str]
) -> None:
    case = str(write(tmp_path / "empty", [] if not at else FAILED))
    assert 0 == main(["diagnose", *at, case])
    assert 0 == main(["diagnose", "--json", *at, case])

    text, found = capsys.readouterr().out.split("\n\n")
    assert "nothing was observed that could be weighed" in text
    assert "The case holds no events" in json.loads(found)["missing"][0]


def test_a_failure_without_a_cause_is_no_all_clear(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed = ev(5, "process", "killed", "n1", rank=8, value=-64.0)
    assert 0 == main(["diagnose", str(write(tmp_path / "killed", [killed]))])

    out = capsys.readouterr().out
    assert "nothing that was observed says why" in out
    assert "Nothing is wrong" not in out
    assert "What to run:\n  peerwatch-check full on" in out


def test_a_broken_case_is_named_and_the_others_are_diagnosed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = write(tmp_path / "bus", FAILED)
    assert 2 == main(["diagnose", str(tmp_path / "none"), str(good)])

    out, err = capsys.readouterr()
    assert "Isolate n3" in out
    assert "none: cannot be read" in err


@pytest.mark.parametrize("arguments", [[], ["--job-id", "7", "case"], ["--at", "nan", "case"]])
def test_a_job_or_cases_are_needed(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["diagnose", *arguments])

    assert 2 == raised.value.code


def test_what_the_rule_says_is_not_said_again_by_the_sign(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = [ev(0, "step", "stalled"), ev(1, "process", "stopped", "n3", rank=24)]

    assert 0 == main(["diagnose", str(write(tmp_path / "halt", stopped))])
    out = capsys.readouterr().out
    assert "has a process that is stopped" in out
    assert "is stopped (" not in out
