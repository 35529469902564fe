"""Records what a real slurmdbd says of jobs that this script makes end in every way that it can.

``PYTHONPATH=tests:exporter:detector python tests/reliability/slurmdbd/record.py FOLDER``, as root,
with Debian's slurm-wlm, slurmdbd and mariadb-server; takes some 3 minutes. FOLDER gets the bytes
that sacct and sacctmgr printed for the program's own commands.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from socket import gethostname

from peerwatch_demo.stack.process import Process, free_ports
from peerwatch_reliability.records import Window
from peerwatch_reliability.sources.slurm.command import lines_of
from peerwatch_reliability.sources.slurm.node_events import event_arguments
from peerwatch_reliability.sources.slurm.sacct import sacct_arguments
from slurm_cluster import Cluster

_DATABASE_SETTINGS = """\
AuthType=auth/none
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={storage}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
"""


def main(target: Path) -> None:
    """Record into a folder."""
    # Slurm's sockets need short paths.
    with tempfile.TemporaryDirectory(prefix="dbd", dir="/tmp") as text:
        folder = Path(text)
        port, storage = free_ports(2)
        cluster = Cluster(Path("/"), folder, 4, _settings(port))
        path = folder / "slurm.conf"
        path.write_text(path.read_text().replace("RealMemory=1000", "RealMemory=1000 Gres=gpu:8"))
        # Only what is a device counts as a GPU.
        for number in range(8):
            os.mknod(folder / f"nvidia{number}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        (folder / "gres.conf").write_text(f"Name=gpu File={folder}/nvidia[0-7]\n")
        processes = _database(folder, port, storage)
        try:

            def is_known() -> bool:
                cluster.command("sacctmgr", "-i", "add", "cluster", "local")
                return "local" in cluster.command("sacctmgr", "-n", "show", "cluster")

            _wait(is_known)
            began = time.time() - 60
            cluster.start()
            play(cluster)
            window = Window(began, time.time() + 60)
            for name, program, arguments in (
                ("sacct.txt", "sacct", sacct_arguments(window)),
                ("events.txt", "sacctmgr", event_arguments(window)),
            ):
                lines = lines_of(Path("/usr/bin"), path, 60, program, *arguments)
                (target / name).write_bytes("".join(f"{line}\n" for line in lines).encode())
        finally:
            cluster.stop()
            for process in reversed(processes):
                process.stop()


def _settings(port: int) -> dict[str, str]:
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "127.0.0.1",
        "AccountingStoragePort": str(port),
        "AccountingStorageTRES": "gres/gpu",
        "AccountingStoreFlags": "job_comment",
        "GresTypes": "gpu",
        "SelectType": "select/cons_tres",
        "SlurmdTimeout": "5",
        "MinJobAge": "2",
        "FirstJobId": "100",
        "MaxJobId": "116",
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
        "KillWait": "2",
        "PartitionName": "urgent Nodes=ALL PriorityTier=9 MaxTime=INFINITE State=UP",
    }


def _database(folder: Path, port: int, storage: int) -> list[Process]:
    data = folder / "data"
    subprocess.run(
        ["mariadb-install-db", f"--datadir={data}", "--user=root",
         "--auth-root-authentication-method=normal", "--skip-test-db"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    socket = folder / "m.sock"
    processes = [
        Process.start(
            "mariadbd",
            ["mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={socket}",
             f"--port={storage}", "--bind-address=127.0.0.1", f"--pid-file={folder}/m.pid"],
            folder / "mariadbd.out",
        )
    ]  # fmt: skip
    grant = "create user slurm@'%' identified by 'slurm'; grant all on slurm.* to slurm@'%'"
    login = ["mariadb", "--no-defaults", f"--socket={socket}", "--user=root", f"--execute={grant}"]
    _wait(lambda: subprocess.run(login, check=False, capture_output=True).returncode == 0)
    path = folder / "slurmdbd.conf"
    path.write_text(
        _DATABASE_SETTINGS.format(folder=folder, port=port, storage=storage, host=gethostname())
    )
    path.chmod(0o600)
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    processes.append(
        Process.start("slurmdbd", ["slurmdbd", "-D"], folder / "dbd.out", environment=environment)
    )
    return processes


def play(cluster: Cluster) -> None:
    """Let jobs end in every way; their names say what happened to each."""

    def submit(name: str, script: str, *arguments: str) -> str:
        given = ("--parsable", "--output=/dev/null", "--requeue", "--gres=gpu:8")
        return cluster.order(
            "sbatch", *given, f"--job-name={name}", *arguments, f"--wrap={script}"
        ).strip()

    def until(job: str, *states: str) -> None:
        _wait(lambda: cluster.job(int(job)) in states)

    def again(job: str) -> None:
        _wait(lambda: cluster.job(int(job)) == "PENDING")
        cluster.command("scontrol", "update", f"JobId={job}", "StartTime=now")

    late = submit("too_long", "sleep 300", "--nodelist=n1", "--time=1")
    lost = submit("lost_its_node", "sleep 50", "--nodelist=n3", "--comment=ckpt=20")
    twice = submit("requeued", "sleep 25", "--nodes=2", "--exclude=n1,n3")
    until(twice, "RUNNING")
    time.sleep(3)
    cluster.order("scontrol", "requeue", twice)
    again(twice)
    until(twice, "RUNNING")
    (dead,) = [each for each in cluster._processes if "n3" in each.popen.args]
    dead.popen.kill()
    until(twice, "COMPLETED", "")
    submit("odd|name\n7|x\nend", "sleep 1", "--nodelist=n2", "--comment=a|b\nc ckpt=30")
    array = submit("array", "sleep $((SLURM_ARRAY_TASK_ID + 2))", "--array=0-1", "--nodelist=n4")
    until(array, "COMPLETED", "")
    stopped = submit("cancelled", "sleep 300", "--nodelist=n2")
    until(stopped, "RUNNING")
    time.sleep(3)
    cluster.order("scancel", stopped)
    never = submit("cancelled_pending", "sleep 300", "--begin=now+1hour")
    cluster.order("scancel", never)
    paused = submit("suspended", "sleep 8", "--nodelist=n2")
    until(paused, "RUNNING")
    time.sleep(2)
    cluster.order("scontrol", "suspend", paused)
    time.sleep(5)
    cluster.order("scontrol", "resume", paused)
    until(paused, "COMPLETED", "")
    for _ in range(2):
        wrong = submit("fails", "sleep 2; exit 3", "--nodelist=n4")
        until(wrong, "FAILED", "")
        time.sleep(4)
    aside = submit("preempted", "sleep 20", "--nodelist=n4")
    until(aside, "RUNNING")
    time.sleep(3)
    urgent = submit("urgent", "sleep 4", "--nodelist=n4", "--partition=urgent")
    until(urgent, "RUNNING")
    again(aside)
    until(aside, "RUNNING")
    until(lost, "PENDING", "RUNNING", "COMPLETED", "")
    if cluster.job(int(lost)) == "PENDING":
        cluster.command("scontrol", "update", f"JobId={lost}", "ReqNodeList=n2", "StartTime=now")
    # A node without jobs is drained, and back.
    until(late, "TIMEOUT", "")
    cluster.order("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=fan | slow\n2 of 3")
    time.sleep(5)
    cluster.order("scontrol", "update", "NodeName=n1", "State=RESUME")
    # The numbers begin anew.
    for _ in range(8):
        reused = submit("number_given_again", "sleep 1", "--nodelist=n1")
        until(reused, "COMPLETED", "")
    until(aside, "COMPLETED", "")
    until(lost, "COMPLETED", "")
    submit("still_runs", "sleep 300", "--nodelist=n4")
    time.sleep(8)


def _wait(condition: object) -> None:
    for _ in range(1200):
        if condition():  # type: ignore[operator]
            return
        time.sleep(0.2)
    raise SystemExit("it did not happen")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
