"""Answers of ``dcgmi diag -j`` in the shapes of DCGM 2, 3 and 4, and the check that reads them."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING, Any

import pytest

from peerwatch_checks.check import Context, Outcome, Skip
from peerwatch_checks.checks.host.dcgm_diag import DcgmDiagOptions, dcgm_diag
from peerwatch_checks.external.command import find_program
from peerwatch_checks.external.dcgm import DiagError, DiagResult, read_diag

if TYPE_CHECKING:
    from pathlib import Path


def answer(root: str, *tests: dict[str, Any], **more: object) -> str:
    category = {"category": "Hardware", "tests": list(tests)}
    return json.dumps({root: {"test_categories": [category]}, **more})


PASSED = {"name": "Graphics Processes", "results": [{"status": "Pass"}]}
SECOND = {"name": "PCIe", "results": [{"gpu_ids": "0,1", "status": "Pass"}]}
FAILED_2 = {
    "name": "GPU Memory",
    "results": [{"gpu_ids": "3", "status": "Fail", "warnings": "Double bit errors:  12"}],
}
FAILED_3 = {
    "name": "GPU Memory",
    "results": [
        {"gpu_id": "3", "status": "Fail", "warnings": [{"warning": "DBE", "error_severity": 2}]},
        {"gpu_id": "4", "status": "Fail", "warnings": [{"warning": "slow", "error_severity": 1}]},
    ],
}
FAILED_4 = {
    "name": "memory",
    "results": [
        {
            "entity_group": "GPU",
            "entity_group_id": 1,
            "entity_id": 3,
            "status": "Fail",
            "warnings": [{"warning": "DBE", "error_id": 9, "error_severity": 6}],
        }
    ],
    "test_summary": {"status": "Fail"},
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            answer("DCGM GPU Diagnostic", PASSED, FAILED_2),
            [
                DiagResult("Graphics Processes", "", "pass", "", high=True),
                DiagResult("GPU Memory", "gpu 3", "fail", "Double bit errors: 12", high=True),
            ],
        ),
        (
            "Successfully ran diagnostic.\n" + answer("DCGM GPU Diagnostic", FAILED_3) + "\nbye",
            [
                DiagResult("GPU Memory", "gpu 3", "fail", "DBE", high=True),
                DiagResult("GPU Memory", "gpu 4", "fail", "slow", high=False),
            ],
        ),
        (
            "{not json} " + answer("DCGM Diagnostic", FAILED_4, metadata={"version": "4.2.3"}),
            [DiagResult("memory", "gpu 3", "fail", "DBE", high=True)],
        ),
        (
            json.dumps({"body": json.loads(answer("DCGM Diagnostic", SECOND)), "header": []}),
            [DiagResult("PCIe", "gpu 0,1", "pass", "", high=True)],
        ),
    ],
    ids=["2", "3", "4", "wrapped"],
)
def test_answers_of_all_versions_are_read(text: str, found: list[DiagResult]) -> None:
    assert read_diag(text) == found


def of_4(**test: Any) -> list[tuple[str, str, str, bool]]:
    """Return device, status, text and severity of what is read of one test of DCGM 4."""
    found = read_diag(answer("DCGM Diagnostic", {"name": "software", **test}))
    return [(each.device, each.status, each.text, each.high) for each in found]


def on_gpu(number: int, status: str, *warnings: dict[str, Any]) -> dict[str, Any]:
    device = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": number, "status": status}
    return {**device, **({"warnings": list(warnings)} if warnings else {})}


def test_what_is_no_devices_own_stands_in_the_summary() -> None:
    setting = {"warning": "No access to a file.", "error_severity": 5}
    broken = {"warning": "DBE", "error_severity": 2}
    summary = {"status": "Fail", "warnings": [setting]}
    both = {"status": "Fail", "warnings": [setting, broken]}

    # All devices fail, and none says why.
    assert of_4(results=[on_gpu(0, "Fail"), on_gpu(1, "Fail")], test_summary=summary) == [
        ("gpu 0", "fail", "No access to a file.", False),
        ("gpu 1", "fail", "No access to a file.", False),
    ]
    # One of them does, and the summary repeats it.
    repeated = [on_gpu(0, "Fail", setting), on_gpu(1, "Fail")]
    assert of_4(results=repeated, test_summary=summary) == [
        ("gpu 0", "fail", "No access to a file.", False),
        ("gpu 1", "fail", "No access to a file.", False),
    ]
    # No device fails, or there is none, or it fails of something else.
    assert of_4(results=[on_gpu(0, "Pass")], test_summary=summary) == [
        ("gpu 0", "pass", "", True),
        ("", "fail", "No access to a file.", False),
    ]
    assert of_4(test_summary=summary) == [("", "fail", "No access to a file.", False)]
    assert of_4(results=[on_gpu(0, "Fail", broken), on_gpu(1, "Pass")], test_summary=both) == [
        ("gpu 0", "fail", "DBE", True),
        ("gpu 1", "pass", "", True),
        ("", "fail", "No access to a file.", False),
    ]
    assert of_4(results=[on_gpu(0, "Pass")], test_summary={"status": "Pass"}) == [
        ("gpu 0", "pass", "", True)
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no JSON"),
        ("Error: unable to connect to nv-hostengine", "no JSON"),
        ('{"DCGM GPU Diagnostic": {"test_categories"', "no JSON"),
        ('{"DCGM GPU Diagnostic": {"runtime_error": "GPU 3 is lost"}}', "GPU 3 is lost"),
        ('{"DCGM GPU Diagnostic": {"test_categories": []}}', "no test"),
        ('{"DCGM GPU Diagnostic": {"test_categories": [1, {"tests": "x"}]}}', "no test"),
        ("[1, 2]", "no JSON"),
        ("{" * 100_000, "no JSON"),
    ],
)
def test_what_is_no_answer_says_why(text: str, reason: str) -> None:
    with pytest.raises(DiagError, match=reason):
        read_diag(text)


def run(folder: Path, script: str, seconds: float = 60.0) -> list[Outcome]:
    program = folder / "dcgmi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    context = Context(DcgmDiagOptions(level=2), "n1", folder, seconds, gpus=(0, 3))
    return list(dcgm_diag(context, find=lambda _name: str(program)))


def test_a_failure_has_dcgms_severity_and_the_rest_is_one_line(tmp_path: Path) -> None:
    text = answer("DCGM GPU Diagnostic", PASSED, SECOND, FAILED_3)
    (tmp_path / "answer").write_text(text)
    found = run(tmp_path, f'echo "$@" > {tmp_path}/told; cat {tmp_path}/answer; exit 226')
    assert [(each.device, each.status, each.severity) for each in found] == [
        ("GPU Memory gpu 3", "fail", "high"),
        ("GPU Memory gpu 4", "fail", "low"),
        ("passed", "pass", None),
    ]
    assert (tmp_path / "told").read_text() == "diag -r 2 -j -i 0,3\n"


def test_a_diagnostic_that_cannot_run_is_no_verdict_on_the_node(tmp_path: Path) -> None:
    (found,) = run(tmp_path, "echo 'Unable to connect to host engine' >&2; exit 1")
    assert found.status == "error"
    assert "Unable to connect" in found.message
    skipped = {"name": "memory", "results": [{"status": "Skip"}, {"status": "Not Run"}]}
    (tmp_path / "answer").write_text(answer("DCGM Diagnostic", skipped))
    assert ["skipped", "error", "error"] == [
        each.status for each in run(tmp_path, f"cat {tmp_path}/answer")
    ]


def test_a_severity_that_is_no_number_is_none() -> None:
    garbled = {"warning": "DBE", "error_severity": [2]}
    assert of_4(results=[on_gpu(0, "Fail", garbled)]) == [("gpu 0", "fail", "DBE", True)]


def test_where_every_test_failed_none_is_called_skipped(tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(answer("DCGM GPU Diagnostic", FAILED_3))
    assert ["fail", "fail"] == [each.status for each in run(tmp_path, f"cat {tmp_path}/answer")]


def test_one_that_never_ends_is_ended(tmp_path: Path) -> None:
    (found,) = run(tmp_path, "exec sleep 1000", seconds=0.5)
    assert found.status == "error"
    assert "did not end" in found.message


def test_a_program_that_is_not_there_is_a_skip(tmp_path: Path) -> None:
    with pytest.raises(Skip, match="peerwatch-none is not installed"):
        find_program("peerwatch-none", {"PATH": str(tmp_path)})
    # A prolog has no PATH.
    assert find_program("sh", {}).endswith("/sh")
