"""As an ordinary user the exporter lacks the kernel log and others' processes, nothing else."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.host_tree import HostTree

NOBODY = 65534
# Everything is imported first: the interpreter's own files may be closed to other users.
SCRIPT = """
import json, os, sys
from pathlib import Path
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.schedule.runner import Runner
from peerwatch_exporter.schedule.worker_set import make_workers
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths
import fake_ethtool

root = Path(sys.argv[1])
registered = {name: one for name, one in registrations().items() if one.process == "main"}
sources = Sources(
    Paths(procfs=root / "proc", sysfs=root / "sys", kmsg=root / "kmsg"),
    ethtool=fake_ethtool.FakeEthtool({"eth0": {"rx_prio3_pause": 7}}),
)
config = ExporterConfig()
make_workers(config, sources, registered, None)
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(int(sys.argv[2]), int(sys.argv[2]), int(sys.argv[2]))
    os.setresuid(int(sys.argv[2]), int(sys.argv[2]), int(sys.argv[2]))
runner = Runner(
    make_workers(config, sources, registered, None), sources, deadline_seconds=20, version="0"
)
snapshot = runner.tick(everybody=True)
status = {one.name: [one.success, one.error] for one in runner.status()}
print(json.dumps({"status": status, "metrics": [item.spec.name for item in snapshot.families]}))
"""


@pytest.fixture
def node() -> Iterator[HostTree]:
    with tempfile.TemporaryDirectory(prefix="peerwatch-unprivileged-") as directory:
        Path(directory).chmod(0o755)
        tree = HostTree(
            Path(directory) / "node", nics=1, gpus=1, nvswitches=0, cpus=2, processes=3, sockets=2
        ).build()
        (tree.root / "kmsg").write_text("6,1,5000000,-;NVRM: loading\n")
        yield tree


def close_to_others(tree: HostTree) -> None:
    """Give files the rights that they have in a real /proc and /dev."""
    # Without root the test itself is such a user, and must not be the owner's equal.
    closed = 0o400 if os.geteuid() == 0 else 0
    (tree.root / "kmsg").chmod(closed)
    for environment in tree.procfs.glob("[0-9]*/environ"):
        environment.chmod(closed)


def collect_as_nobody(tree: HostTree) -> dict[str, dict[str, list[object]]]:
    path = [str(Path(__file__).parents[1]), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tree.root), str(NOBODY)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return json.loads(done.stdout)


def test_what_an_ordinary_user_does_not_see(node: HostTree) -> None:
    before = collect_as_nobody(node)
    close_to_others(node)
    after = collect_as_nobody(node)

    lost = {name: after["status"][name] for name in before["status"]}
    changed = {name: how for name, how in lost.items() if how != before["status"][name]}
    assert {
        "jobs": [True, "environment_permission_denied"],
        "kernel": [False, "permission_denied"],
        "ranks": [False, "permission_denied"],
        "sxid": [False, "permission_denied"],
        "xid": [False, "permission_denied"],
    } == changed
    others = ("rank_", "host_job_", "gpu_xid_", "host_kernel_", "exporter_")
    missing = set(before["metrics"]) - set(after["metrics"])
    assert "rank_info" in missing
    assert "host_kernel_events_total" in missing
    assert [] == [name for name in missing if not name.startswith(others)]


def test_nothing_is_written(node: HostTree) -> None:
    files = {path: path.stat().st_mtime_ns for path in node.root.rglob("*") if path.is_file()}
    collect_as_nobody(node)
    assert files == {
        path: path.stat().st_mtime_ns for path in node.root.rglob("*") if path.is_file()
    }
