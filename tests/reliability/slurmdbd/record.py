"""Records what a real slurmdbd says of jobs that this script makes end in every way that it can.

``PYTHONPATH=tests:exporter:detector python tests/reliability/slurmdbd/record.py FOLDER``, as root,
after ``.ci/setup test``; takes some 3 minutes. FOLDER gets the bytes that sacct and sacctmgr
printed for the program's own commands.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from peerwatch_reliability.records import Window
from peerwatch_reliability.sources.slurm.command import lines_of
from peerwatch_reliability.sources.slurm.node_events import event_arguments
from peerwatch_reliability.sources.slurm.sacct import sacct_arguments
from slurm_accounting import Accounting, folder_of_accounting, without_accounting
from slurm_cluster import Cluster, folder_of_slurm

_SETTINGS = {
    "SlurmdTimeout": "5",
    "MinJobAge": "2",
    "FirstJobId": "100",
    "MaxJobId": "116",
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "REQUEUE",
    "KillWait": "2",
    "PartitionName": "urgent Nodes=ALL PriorityTier=9 MaxTime=INFINITE State=UP",
}


def main(target: Path) -> None:
    """Record into a folder."""
    root, of_slurm = folder_of_accounting(), folder_of_slurm()
    if root is None or of_slurm is None:
        raise SystemExit(without_accounting())
    # Slurm's sockets need short paths.
    with tempfile.TemporaryDirectory(prefix="dbd", dir="/tmp") as text:
        folder = Path(text)
        accounting = Accounting(root, folder)
        cluster = Cluster(of_slurm, folder, 4, {**accounting.settings, **_SETTINGS})
        for program in ("sacct", "sacctmgr"):
            cluster.script_of(program)
        try:
            accounting.start(cluster)
            began = time.time() - 60
            cluster.start()
            play(cluster)
            window = Window(began, time.time() + 60)
            for name, program, arguments in (
                ("sacct.txt", "sacct", sacct_arguments(window)),
                ("events.txt", "sacctmgr", event_arguments(window)),
            ):
                lines = lines_of(folder, None, 60, program, *arguments)
                (target / name).write_bytes("".join(f"{line}\n" for line in lines).encode())
        finally:
            cluster.stop()
            accounting.stop()


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
    cluster.kill("n3")
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
