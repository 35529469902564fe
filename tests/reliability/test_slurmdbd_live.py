"""The report on a Slurm with a slurmdbd: jobs that end in many ways, and a node that dies."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
import pytest
import yaml

from slurm_accounting import GPUS_PER_NODE, Accounting, folder_of_accounting, without_accounting
from slurm_cluster import Cluster, folder_of_slurm

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    # A step of a job on this machine makes the checks of another test wait or skip.
    pytest.mark.xdist_group("slurm_steps"),
    pytest.mark.skipif(
        folder_of_accounting() is None, reason=without_accounting() or "slurmdbd is there"
    ),
]
SEPARATOR = "\x1f"
# Exporters of other tests read the environments of this machine's processes.
SLEEP = "exec env -i /bin/sleep"
# A job's first run lasts until something ends it, its second for a moment.
RUNS_TWICE = f'[ -n "$SLURM_RESTART_COUNT" ] && {SLEEP} 2; {SLEEP} 900'
ODD_NAME, ODD_REASON = "odd|name\n7|x\nend", "fan | slow\n2 of 3"


class Said(NamedTuple):
    """What the program said of all that, and what a plain sacct did."""

    report: dict[str, Any]
    lemons: dict[str, Any]
    # Of each row: its number, its name, and the seconds of submission, start and end.
    rows: list[tuple[str, str, str, str, str]]

    def job(self, name: str) -> dict[str, Any]:
        """Return the only job of a name."""
        (found,) = self.jobs(name)
        return found

    def jobs(self, name: str) -> list[dict[str, Any]]:
        """Return the jobs of a name."""
        return [each for each in self.report["jobs_with_most_gpu_time"] if each["name"] == name]

    def wall_seconds(self, job_id: str) -> int:
        """Return the time from a job's submission to its last end, by plain sacct."""
        times = [each[2:] for each in self.rows if each[0] == job_id]
        return max(int(end) for *_, end in times) - min(int(submit) for submit, *_ in times)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Said]:
    """Yield what the program says once all jobs have ended and are written down."""
    folder = tmp_path_factory.mktemp("dbd")
    root, of_slurm = folder_of_accounting(), folder_of_slurm()
    assert root is not None
    assert of_slurm is not None
    accounting = Accounting(root, folder)
    more = {"SlurmdTimeout": "15", "MinJobAge": "2", "KillWait": "2"}
    cluster = Cluster(of_slurm, folder, 4, {**accounting.settings, **more})
    for program in ("sacct", "sacctmgr"):
        cluster.script_of(program)
    began = time.time()
    try:
        accounting.start(cluster)
        cluster.start()
        play(cluster)
        cluster.wait_for(lambda: all(end.isdecimal() for *_, end in plain_rows(cluster, began)))
        yield Said(
            printed(folder, "report", "--json"),
            printed(folder, "lemons", "--json"),
            plain_rows(cluster, began),
        )
    finally:
        cluster.stop()
        accounting.stop()


def plain_rows(cluster: Cluster, began: float) -> list[tuple[str, str, str, str, str]]:
    """Return what sacct says without our options, but for a separator that no name holds."""
    first = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(began - 60))
    cluster.environment["SLURM_TIME_FORMAT"] = "%s"
    fields = "--format=JobIDRaw,JobName,Submit,Start,End"
    out = cluster.order(
        "sacct", "-a", "-D", "-X", "-P", "-n", f"-S{first}", f"--delimiter={SEPARATOR}", fields
    )
    texts = out.replace(ODD_NAME, "odd").splitlines()
    return [tuple(text.split(SEPARATOR)) for text in texts]  # type: ignore[misc]


def printed(folder: Path, *arguments: str) -> dict[str, Any]:
    """Return what the program prints, run as its users run it."""
    settings = folder / "reliability.yaml"
    settings.write_text(yaml.safe_dump({"slurm": {"folder": str(folder)}, "nodes": 4}))
    done = subprocess.run(
        [sys.executable, "-m", "peerwatch_reliability", *arguments, "--config", str(settings)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def play(cluster: Cluster) -> None:
    """Let jobs end in many ways; their names say what happened to each."""

    def submit(name: str, script: str, *arguments: str) -> str:
        given = ("--parsable", "--output=/dev/null", "--requeue", f"--gres=gpu:{GPUS_PER_NODE}")
        return cluster.order(
            "sbatch", *given, f"--job-name={name}", *arguments, f"--wrap={script}"
        ).strip()

    def until(job: str, *states: str) -> None:
        cluster.wait_for(lambda: cluster.job(int(job)) in states)

    def again(job: str, *how: str) -> None:
        # A job that was interrupted waits for two minutes otherwise.
        until(job, "PENDING")
        cluster.order("scontrol", "update", f"JobId={job}", "StartTime=now", *how)
        until(job, "COMPLETED", "")

    lost = submit("lost_its_node", RUNS_TWICE, "--nodelist=n3", "--comment=ckpt=20")
    waiting = submit("cancelled_waiting", f"{SLEEP} 900", "--nodelist=n3")
    twice = submit("requeued", RUNS_TWICE, "--nodes=2", "--exclude=n1,n3")
    until(lost, "RUNNING")
    die(cluster, "n3")
    until(twice, "RUNNING")
    cluster.order("scontrol", "update", "NodeName=n1", "State=DRAIN", f"Reason={ODD_REASON}")
    time.sleep(3)  # what is counted in whole seconds
    cluster.order("scancel", waiting)
    cluster.order("scontrol", "update", "NodeName=n1", "State=RESUME")
    cluster.order("scontrol", "requeue", twice)
    again(twice)
    stopped = submit("cancelled", f"{SLEEP} 900", "--nodelist=n2")
    until(stopped, "RUNNING")
    array = submit("array", f"{SLEEP} $((SLURM_ARRAY_TASK_ID + 1))", "--array=0-1", "--nodelist=n4")
    cluster.order("scancel", stopped)
    wrong = submit(ODD_NAME, "sleep 1; exit 3", "--nodelist=n2", "--comment=a|b\nc ckpt=30")
    until(wrong, "FAILED", "")
    until(array, "COMPLETED", "")
    again(lost, "ReqNodeList=n2")


def die(cluster: Cluster, node: str) -> None:
    """End a node at once: its slurmd, and what runs its jobs."""
    cluster.wait_for(lambda: steps(cluster, node))
    cluster.kill(node)
    for step in steps(cluster, node):
        for process in [step, *step.children(recursive=True)]:
            process.kill()


def steps(cluster: Cluster, node: str) -> list[psutil.Process]:
    """Return what runs the jobs of a node, which goes on without its slurmd."""
    log = str(cluster.folder / f"{node}.log")
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess):
            title = " ".join(process.cmdline())
            # Another test's Slurm may run a job of this number.
            if "slurmstepd" in title and log in {each.path for each in process.open_files()}:
                found.append(process)
    return found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lost_its_node", [("node_fail", "first", ["n3"]), ("completed", "requeued", ["n2"])]),
        (
            "requeued",
            [("requeued", "first", ["n2", "n4"]), ("completed", "requeued", ["n2", "n4"])],
        ),
        ("cancelled", [("cancelled", "first", ["n2"])]),
        ("cancelled_waiting", [("cancelled", "first", [])]),
        (ODD_NAME, [("failed", "first", ["n2"])]),
    ],
)
def test_attempts(said, name, expected):
    found = said.job(name)["attempts"]
    assert [(each["state"], each["link"], each["nodes"]) for each in found] == expected


def test_tasks_of_an_array_are_jobs_of_their_own(said):
    of_tasks = [each["attempts"] for each in said.jobs("array")]
    assert [[each["state"] for each in of_task] for of_task in of_tasks] == [["completed"]] * 2
    assert said.report["jobs"] == 7
    assert said.report["attempts"] == 9


def test_times_add_up_to_the_wall(said):
    for job in said.report["jobs_with_most_gpu_time"]:
        total = 0.0
        for each in job["attempts"]:
            parts = [each[f"{name}_seconds"] for name in ("queue", "productive", "unproductive")]
            assert min(parts) >= 0
            assert sum(parts) == pytest.approx(each["wall_seconds"], abs=1e-6)
            total += sum(parts)
        assert total == pytest.approx(said.wall_seconds(job["job_id"]), abs=1.0), job["name"]
    assert said.job("cancelled_waiting")["attempts"][0]["queue_seconds"] >= 2
    assert said.job("cancelled_waiting")["gpu_hours"] == 0


def test_what_ended_whom(said):
    attempts = {
        each["name"]: each["attempts"][0] for each in said.report["jobs_with_most_gpu_time"]
    }
    assert {name: (each["origin"], each["cause"]) for name, each in attempts.items()} == {
        "lost_its_node": ("infrastructure", "node_fail"),
        "requeued": ("scheduler", None),
        "cancelled": ("scheduler", None),
        "cancelled_waiting": ("scheduler", None),
        "array": ("none", None),
        # Without a Prometheus nobody knows.
        ODD_NAME: ("unknown", None),
    }
    assert (said.report["failures"], said.report["unexplained"]) == (1, 1)
    (incident,) = said.report["incidents"]
    lost, after = said.job("lost_its_node")["attempts"]
    assert (incident["cause"], incident["node"]) == ("node_fail", "n3")
    assert incident["gpus"] == GPUS_PER_NODE
    assert incident["time"] == lost["ended_at"]
    assert incident["recovery_seconds"] >= after["started_at"] - lost["ended_at"]
    hours = (lost["ended_at"] - lost["started_at"]) * GPUS_PER_NODE / 3600
    (of_cause,) = said.report["goodput_lost_gpu_hours"].items()
    assert of_cause == ("node_fail", {"first_order": pytest.approx(hours), "second_order": 0})


def test_nodes_out_of_service(said):
    found = {each["node"]: each for each in said.report["out_of_service"]}
    assert set(found) == {"n1", "n3"}
    assert found["n1"]["reason"] == ODD_REASON
    assert 2 <= found["n1"]["end"] - found["n1"]["start"] <= 600
    assert (found["n3"]["end"], found["n3"]["reason"]) == (None, "Not responding")
    lost, _ = said.job("lost_its_node")["attempts"]
    assert found["n3"]["start"] >= lost["ended_at"] - 1
    assert (said.lemons["fleet"], said.lemons["returns"]) == (4, 1)
    assert set(said.lemons["probation_days_left"]) == {"n1"}
