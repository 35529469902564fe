"""Advice in a real Slurm: the epilog asks about jobs that failed, and requeues some."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_cluster import Cluster, folder_of_slurm, without_slurm

pytestmark = [
    pytest.mark.xdist_group("slurm_steps"),
    pytest.mark.skipif(folder_of_slurm() is None, reason=without_slurm() or "Slurm is there"),
]
ROOT = Path(__file__).parents[3]
EPILOG = ROOT / "docs" / "slurm" / "retry-epilog.sh"
FAILS = "echo 'RuntimeError: CUDA out of memory. Tried to allocate 2 GiB'; exit 1"
# The first run crashes, the second finds nothing wrong.
CRASHES = (
    'if [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then echo "Fatal Python error: Segmentation fault"; '
    "exit 139; fi; echo done"
)


@pytest.fixture
def slurm(tmp_path):
    epilog, config, log = tmp_path / "epilog.sh", tmp_path / "r.yaml", tmp_path / "retry.log"
    responder = tmp_path / "responder"
    path = ":".join(str(ROOT / name) for name in ("exporter", "detector"))
    responder.write_text(
        f'#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} -m peerwatch_responder "$@"\n'
    )
    responder.chmod(0o755)
    cluster = Cluster(folder_of_slurm(), tmp_path, 1, {})
    cluster.script_of("scontrol")
    config.write_text(
        f"cluster: {{type: slurm, folder: {tmp_path}, timeout_seconds: 300}}\n"
        f"retry: {{history: {tmp_path / 'history.jsonl'}}}\n"
    )
    epilog.write_text(
        EPILOG.read_text()
        .replace("/opt/peerwatch/bin/peerwatch-responder", str(responder))
        .replace("/etc/peerwatch/responder.yaml", str(config))
        .replace("/usr/bin/scontrol", str(tmp_path / "scontrol"))
        .replace("/var/log/slurm/retry.log", str(log))
    )
    epilog.chmod(0o755)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def test_jobs_are_requeued_as_advised(slurm, monkeypatch):
    monkeypatch.chdir(slurm.folder)
    failing, crashing = slurm.submit("n1", FAILS), slurm.submit("n1", CRASHES)

    def shown(job):
        return slurm.command("scontrol", "--oneliner", "show", "job", str(job))

    slurm.wait_for(lambda: slurm.job(failing) == slurm.job(crashing) == "FAILED")
    # As slurmctld runs it, with its words for the job.
    for job, code in ((failing, "1:0"), (crashing, "139:0"), (crashing, "0:0")):
        said = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": str(job), "SLURM_JOB_EXIT_CODE2": code}
        subprocess.run([slurm.folder / "epilog.sh"], env=said, check=True, timeout=300)
    slurm.wait_for(lambda: slurm.job(crashing) == "COMPLETED")
    assert "Restarts=1" in shown(crashing)
    assert slurm.job(failing) == "FAILED"
    assert "Restarts=0" in shown(failing)
    rows = [json.loads(line) for line in (slurm.folder / "history.jsonl").read_text().splitlines()]
    advised = {row["job"]: (row["advice"], row["attempt"]) for row in rows}
    assert advised == {
        str(failing): ("do_not_retry", "0"),
        str(crashing): ("retry", "0"),
    }
