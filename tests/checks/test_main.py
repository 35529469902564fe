"""The program as its users run it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from checks_program import Program
from peerwatch_checks.__main__ import main
from peerwatch_checks.run.lock import node_lock
from peerwatch_common.check_results.record import parse_record
from peerwatch_common.check_results.spool import read_spool

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def statuses(records: list) -> dict[str, str]:
    return {f"{record.check} {record.device}".strip(): record.status for record in records}


def test_records_exit_status_spool_and_textfile_say_the_same(
    program: Program, tmp_path: Path
) -> None:
    output, textfile = tmp_path / "out.jsonl", tmp_path / "checks.prom"

    status, records, err = program.run(
        *("passes", "raises", "skips", "fails_once", "fails", "fails_among_many"),
        *("--output", str(output), "--textfile", str(textfile)),
    )

    assert 2 == status
    assert {
        "passes": "pass",
        "raises": "error",
        "skips": "skipped",
        "fails_once": "warn",
        "fails_among_many": "fail",
        "fails gpu0": "fail",
        "fails gpu1": "pass",
    } == statuses(records)
    assert {"n1"} == {record.node for record in records}
    assert [2, 2, 2] == [r.attempts for r in records if r.check in {"fails", "fails_once"}]
    assert [1] == [r.attempts for r in records if r.check == "fails_among_many"]
    assert records == [parse_record(line) for line in output.read_text().splitlines()]
    assert sorted(records, key=str) == sorted(read_spool(program.spool).records, key=str)
    assert "[1/6] fails: about 1 s" in err
    assert "FAILED: 2 fail, 1 warn, 1 error, 1 skipped, 2 pass" in err.splitlines()[-1]
    text = textfile.read_text()
    assert 'peerwatch_check_status{check="fails",device="gpu0",scope="host",severity="high"} 2' in (
        text
    )
    assert (
        'peerwatch_check_value_ratio{check="passes",device="",scope="host",severity="low"} 0.9'
        in (text)
    )
    assert 0o644 == textfile.stat().st_mode & 0o777
    assert 'unit="GB/s"} 9' in text
    assert 5 == text.count("# TYPE")
    if promtool := shutil.which("promtool"):
        done = subprocess.run(
            [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.parametrize(
    ("check", "status"),
    [("passes", 0), ("fails_once", 1), ("fails_low", 2), ("raises", 3), ("skips", 3)],
)
def test_the_exit_status_by_hand(check: str, status: int, program: Program) -> None:
    assert status == program.run(check)[0]


@pytest.mark.parametrize(
    ("check", "status"), [("fails", 2), ("fails_low", 0), ("raises", 0), ("needs_a_gpu", 0)]
)
def test_only_a_failure_of_high_severity_drains_in_slurm(
    check: str, status: int, program: Program
) -> None:
    # As slurmd starts it: hardly any variable, and no PATH.
    found, records, _err = program.run(
        check, "--mode", "epilog", PATH="", SLURM_JOB_ID="17", SLURM_JOB_GPUS=""
    )

    assert status == found
    assert {("epilog", "17")} == {(record.mode, record.job_id) for record in records}


def test_a_job_has_only_its_own_gpus_tested(program: Program) -> None:
    _status, records, _err = program.run("reads", "--mode", "prolog", SLURM_JOB_GPUS="1,4-5")

    assert ["n1 attempt 0 gpus (1, 4, 5)"] == [record.message for record in records]


def test_mistakes_never_drain_and_never_pass(program: Program) -> None:
    for arguments, environment in (
        (("passses",), {}),
        (("passes", "--timeout", "never"), {}),
        (("passes", "list"), {}),
        (("passes", "--textfile", "x.txt"), {}),
        (("passes", "--peers", "/nowhere"), {}),
        (("passes",), {"SLURM_JOB_GPUS": "GPU-1234"}),
    ):
        if not environment:
            status, records, err = program.run(*arguments)
            assert (3, []) == (status, records), arguments
            assert "peerwatch-check: " in err
        status, records, _err = program.run(*arguments, "--mode", "prolog", **environment)
        assert (0, []) == (status, records), arguments


def test_every_mistake_in_the_settings_is_said_at_once(program: Program) -> None:
    program.settings |= {
        "exclude": ["mount"],
        "checks": {"passes": {"fille": "/x"}, "filesystem_space": {"warn_ratio": 3}},
        "busy": {"cpu_ratio": 1.0},
    }

    status, _records, err = program.run("passes")

    assert 3 == status
    assert "3 mistakes" in err
    assert "checks.passes.fille: unknown key 'fille'; did you mean 'file'?" in err
    assert "checks.filesystem_space.warn_ratio" in err
    assert "exclude: there is no check 'mount'" in err


def test_a_second_run_is_skipped_and_leaves_no_trace(program: Program) -> None:
    with node_lock(program.lock):
        status, records, _err = program.run("passes", "reads")

    assert 3 == status
    assert {"passes": "skipped", "reads": "skipped"} == statuses(records)
    assert "Another run of checks holds" in records[0].message
    assert not program.spool.exists()


# The checks of a real Slurm's nodes, in other tests, see this step.
@pytest.mark.xdist_group("slurm_steps")
def test_a_node_in_use_has_no_load_put_on_it(program: Program) -> None:
    program.settings["busy"]["slurm"] = True
    name = "slurmstepd: [4711.0]"
    sleeper = "import time; print('up', flush=True); time.sleep(600)"
    with subprocess.Popen(
        [name, "-c", sleeper], executable=sys.executable, stdout=subprocess.PIPE
    ) as step:
        try:
            assert step.stdout is not None
            step.stdout.readline()
            _status, records, _err = program.run("passes", "reads")
            _status, forced, _err = program.run("passes", "--even-if-busy")
        finally:
            step.kill()

    # What only reads runs all the same.
    assert {"passes": "skipped", "reads": "pass"} == statuses(records)
    # A machine that has Slurm may have another step.
    (message,) = (record.message for record in records if record.check == "passes")
    assert re.fullmatch(r"Slurm's job \d+ runs on the node\.", message)
    assert {"passes": "pass"} == statuses(forced)


def test_sigterm_leaves_records_of_all_and_no_process(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    program.settings["checks"] = {"has_children": {"file": str(file)}}
    process = program.start("has_children", "reads", "passes", "--json")
    for _ in range(6000):
        if file.exists() and len(file.read_text().split()) == 3:
            break
        time.sleep(0.02)

    process.send_signal(signal.SIGTERM)

    out, _err = process.communicate(timeout=300)
    records = [parse_record(line) for line in out.splitlines()]
    assert 3 == process.returncode
    assert {"has_children": "error", "reads": "skipped", "passes": "skipped"} == statuses(records)
    assert "It was ended: by SIGTERM." == records[0].message
    assert "error" == program.spooled("has_children")[0]["status"]
    assert not any(map(psutil.pid_exists, map(int, file.read_text().split())))


def test_what_there_is_no_time_for_is_skipped(program: Program) -> None:
    program.settings["checks"] = {}
    status, records, _err = program.run("has_children", "reads", "--timeout", "1")

    assert 3 == status
    assert {"has_children": "error", "reads": "skipped"} == statuses(records)
    assert "No time was left of the 1 s" in records[1].message


def test_a_skipped_check_does_not_hide_what_it_found_before(program: Program) -> None:
    program.run("passes")
    program.settings["paths"]["procfs"] = "/nowhere"
    program.settings["busy"]["cpu_ratio"] = 1e-9
    (record,) = program.run("passes")[1]

    assert "skipped" == record.status
    assert "pass" == program.spooled("passes")[0]["status"]


def test_results_that_cannot_be_kept_are_still_printed(program: Program, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, records, err = program.run("passes", "--spool", str(tmp_path / "file" / "spool"))

    assert (0, {"passes": "pass"}) == (status, statuses(records))
    assert "the exporter does not get these results" in err


def test_a_table_for_people(program: Program) -> None:
    process = program.start("passes", "fails_low", "skips")
    out, _err = process.communicate(timeout=300)

    lines = out.splitlines()
    assert ["FAIL", "skipped", "pass"] == [line.split()[0] for line in lines[1:4]]
    assert "FAILED: 1 fail, 1 skipped, 1 pass" == lines[-1]


def test_the_list_has_the_sites_own_checks(
    program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    process = program.start("list")
    out, _err = process.communicate(timeout=300)

    assert "fails_once" in out


def test_nothing_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([])

    assert 3 == caught.value.code


def test_the_reason_is_a_line_and_nothing_without_one(program: Program) -> None:
    def said(*arguments: str) -> tuple[int, str]:
        process = program.start(*arguments, "--mode", "health", "--reason")
        out, _err = process.communicate(timeout=600)
        return process.returncode, out

    assert (2, "fails gpu0 failed: It is broken.\n") == said("fails", "fails_low")
    assert (0, "") == said("fails_low", "raises")


def test_a_health_check_tests_all_gpus(program: Program) -> None:
    _status, records, _err = program.run("reads", "--mode", "health", SLURM_JOB_GPUS="")

    assert ["n1 attempt 0 gpus None"] == [record.message for record in records]


def test_what_is_printed_is_one_thing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["config", "--json", "--reason"])

    assert 3 == caught.value.code
    assert "--reason and --json" in capsys.readouterr().err
