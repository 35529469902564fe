"""Prolog, Epilog and HealthCheckProgram under a real slurmctld, with a slurmd for each node."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil
import pytest
import yaml

from peerwatch_checks.check import checks
from peerwatch_common.check_results.record import parse_record
from slurm_cluster import Cluster, folder_of_slurm, without_slurm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_common.check_results.record import Record

SCRIPTS = Path(__file__).resolve().parents[3] / "docs" / "slurm"
SITE = Path(__file__).parent / "site"
# What the check of the site leaves behind, as it stands there.
SLEEPS = "import time; time.sleep(600)"
NODES = {"n1": "pass", "n2": "fail_in_prolog", "n3": "hang", "n4": "fail", "n5": "a mistake"}
pytestmark = [
    # A step of a job on this machine makes the checks of another test wait or skip.
    pytest.mark.xdist_group("slurm_steps"),
    pytest.mark.skipif(folder_of_slurm() is None, reason=without_slurm() or "Slurm is there"),
]


def settings(folder: Path, node: str, does: str) -> None:
    """Write a node's settings: of all checks only those of this site, and all files of its own."""
    others = [name for name in checks() if not name.startswith("site_")]
    others.append("site_check" if does == "hang" else "site_hang")
    config = {
        "spool": str(folder / node / "spool"),
        "folders": [str(SITE)],
        "exclude": others,
        "busy": {"cpu_ratio": 1.0},
        "paths": {"lock": str(folder / node / "lock")},
        "checks": {"site_check": {"does": does, "file": str(folder / node / "started")}},
    }
    if does == "a mistake":
        config["exclude"] = ["no_such_check"]
    if does == "hang":
        del config["checks"]
    (folder / node).mkdir()
    (folder / f"{node}.yaml").write_text(yaml.safe_dump(config))


def script(folder: Path, name: str, **lines: str) -> str:
    """Copy a script of the documentation, with paths of this test; return where it is."""
    # How long it takes is the machine's business.
    text = (SCRIPTS / name).read_text().replace("--reason", "--reason --timeout 3600")
    for variable, value in lines.items():
        text, count = re.subn(f"(?m)^{variable}=.*$", f"{variable}={value}", text)
        assert 1 == count, variable
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def program(folder: Path) -> str:
    """Return an executable that is this checkout's peerwatch-check."""
    path = folder / "peerwatch-check"
    packages = shlex.quote(os.pathsep.join(sys.path))
    run = f"PYTHONPATH={packages} exec {shlex.quote(sys.executable)} -m peerwatch_checks"
    path.write_text(f'#!/bin/sh\n{run} "$@"\n')
    path.chmod(0o755)
    return str(path)


def only_n4(folder: Path) -> str:
    """Return a program that is the health check on n4: every slurmd runs it before it registers.

    Slurm ends it after 60 s, which five of them at once may need on a busy machine.
    """
    path = folder / "health-check-of-n4.sh"
    path.write_text(f'#!/bin/sh\n[ "$SLURMD_NODENAME" = n4 ] && exec {folder}/health-check.sh\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a cluster of which every node had a job."""
    folder = tmp_path_factory.mktemp("slurm")
    for node, does in NODES.items():
        settings(folder, node, does)
    lines = {"check": program(folder), "settings": f"{folder}/$SLURMD_NODENAME.yaml"}
    scripts = {
        "Prolog": script(folder, "check-prolog.sh", **lines),
        "Epilog": script(folder, "check-epilog.sh", **lines),
        "HealthCheckProgram": only_n4(folder),
    }
    script(folder, "health-check.sh", **lines, scontrol=str(folder / "scontrol"))
    more = {"HealthCheckInterval": "3600", "HealthCheckNodeState": "ANY,CYCLE"}
    more |= {"BatchStartTimeout": "3600", "MessageTimeout": "100", "MinJobAge": "36000"}
    root = folder_of_slurm()
    assert root is not None
    found = Cluster(root, folder, len(NODES), scripts | more)
    found.script_of("scontrol")
    try:
        found.start()
        yield found
    finally:
        found.stop()


class Node(NamedTuple):
    """What became of a node after a job of it: its job's id and state, and what the check found."""

    job: int
    job_state: str
    state: str
    reason: str
    record: Record | None


@pytest.fixture(scope="module")
def nodes(cluster: Cluster) -> dict[str, Node]:
    """Return the nodes after all of their prologs and epilogs; n4 takes no job."""
    jobs = {node: cluster.submit(node, "true") for node in ("n1", "n2", "n3", "n5")}
    for node in ("n1", "n3", "n5"):
        cluster.wait_for(lambda job=jobs[node]: cluster.job(job) == "COMPLETED")
    # After a prolog that failed Slurm runs the epilog, too, and then the job waits again.
    cluster.wait_for(lambda: cluster.job(jobs["n2"]) == "PENDING" and cluster.reason("n2"))
    cluster.wait_for(lambda: "DRAIN" in cluster.state("n4"))
    cluster.wait_for(lambda: all(cluster.state(node) == "IDLE" for node in ("n1", "n3", "n5")))
    return {
        node: Node(job, cluster.job(job), cluster.state(node), cluster.reason(node), record)
        for node in NODES
        for job, record in [(jobs.get(node, 0), spooled(cluster, node))]
    }


def spooled(cluster: Cluster, node: str) -> Record | None:
    """Return what a node's spool folder has of its check."""
    found = list((cluster.folder / node).glob("spool/*.jsonl"))
    return parse_record(found[0].read_text()) if found else None


def test_a_job_starts_on_a_healthy_node_and_its_epilog_tests_the_node(
    nodes: dict[str, Node],
) -> None:
    node = nodes["n1"]

    assert ("COMPLETED", "IDLE", "") == node[1:4]
    assert node.record is not None
    assert ("n1", "epilog", "pass") == (node.record.node, node.record.mode, node.record.status)
    assert str(node.job) == node.record.job_id


def test_a_failure_of_severity_high_drains_the_node_and_the_job_waits_for_another(
    nodes: dict[str, Node],
) -> None:
    node = nodes["n2"]

    assert ("PENDING", "Prolog error") == (node.job_state, node.reason)
    assert node.record is not None
    assert ("fail", 2) == (node.record.status, node.record.attempts)


def test_a_check_that_hangs_ends_at_its_deadline_and_drains_nothing(
    nodes: dict[str, Node],
) -> None:
    node = nodes["n3"]

    assert ("COMPLETED", "IDLE", "") == node[1:4]
    assert node.record is not None
    assert ("error", "epilog") == (node.record.status, node.record.mode)
    assert "It did not end within 1.5 s and was ended." == node.record.message


def test_the_health_check_drains_a_node_before_it_gets_a_job(nodes: dict[str, Node]) -> None:
    assert "IDLE+DRAIN" == nodes["n4"].state
    assert "peerwatch: site_check fan2 failed: It was told to fail." == nodes["n4"].reason


def test_settings_with_a_mistake_drain_nothing(nodes: dict[str, Node]) -> None:
    assert ("COMPLETED", "IDLE", "", None) == nodes["n5"][1:]


def test_the_health_check_names_the_check_for_which_a_prolog_had_the_node_drained(
    cluster: Cluster, nodes: dict[str, Node]
) -> None:
    settings_of_n2 = cluster.folder / "n2.yaml"
    settings_of_n2.write_text(settings_of_n2.read_text().replace("fail_in_prolog", "fail"))
    health_check(cluster, "n2")
    named = cluster.reason("n2")
    cluster.command("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=a new fan")
    health_check(cluster, "n2")

    assert "Prolog error" == nodes["n2"].reason
    assert "peerwatch: site_check fan2 failed: It was told to fail." == named
    assert "a new fan" == cluster.reason("n2")


def health_check(cluster: Cluster, node: str) -> None:
    """Run the program as slurmd does."""
    subprocess.run(
        [str(cluster.folder / "health-check.sh")],
        env={"SLURMD_NODENAME": node},
        check=True,
        capture_output=True,
        timeout=300,
    )


def test_no_process_is_left(cluster: Cluster, nodes: dict[str, Node]) -> None:
    started = [
        int(pid)
        for node in ("n1", "n2", "n4")
        for pid in (cluster.folder / node / "started").read_text().split()
    ]

    # Prolog and epilog of two nodes, health check of one; what failed was tested again.
    assert len(started) >= 2 + 4 + 2
    # A job whose prolog failed waits again while its epilog still runs; what is left sleeps longer
    # than this waits.
    cluster.wait_for(lambda: not any(is_alive(pid) for pid in started))


def is_alive(pid: int) -> bool:
    """Return whether a process of the check's lives; its number may be another's by now."""
    try:
        process = psutil.Process(pid)
        return SLEEPS in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_what_puts_load_on_a_node_does_not_run_beside_a_job(
    cluster: Cluster, nodes: dict[str, Node]
) -> None:
    # Exporters of other tests read the environments of this machine's processes.
    job = cluster.submit("n1", "exec env -i /bin/sleep 600")
    cluster.wait_for(lambda: steps(job))
    beside = tried(cluster)
    cluster.command("scancel", str(job))
    cluster.wait_for(lambda: not steps(job))
    status, record = tried(cluster)

    # Somebody else's job may run on this machine as well.
    named = r"Slurm's job \d+ runs on the node."
    assert (3, "skipped") == (beside[0], beside[1].status)
    assert re.fullmatch(named, beside[1].message)
    assert (0, "pass") == (status, record.status) or f"job {job} " not in record.message


def steps(job: int) -> list[str]:
    """Return the steps of a job that run."""
    titles = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    return [title for title in titles if re.match(rf"slurmstepd[\w-]*: \[{job}\.", title)]


def tried(cluster: Cluster) -> tuple[int, Record]:
    """Try to put load on n1 by hand; return the exit status and the result."""
    command = [str(cluster.folder / "peerwatch-check"), "site_load", "--json"]
    command += ["--config", str(cluster.folder / "n1.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, parse_record(done.stdout)


@pytest.mark.parametrize("name", ["check-prolog.sh", "check-epilog.sh"])
def test_prolog_and_epilog_call_no_command_of_slurm(name: str) -> None:
    code = [line for line in (SCRIPTS / name).read_text().splitlines() if not line.startswith("#")]

    assert not re.search(r"\b(scontrol|squeue|sinfo|sacct\w*|srun|sbatch)\b", "\n".join(code))
