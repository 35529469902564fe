"""The training job under a real Slurm: a slurmd on each node, one batch job over most of them."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from peerwatch_demo.cluster.namespaces import Network
from peerwatch_demo.cluster.nodes import Node, Place
from peerwatch_demo.response.job import JobFiles
from peerwatch_demo.stack.process import StackError
from peerwatch_demo.stack.servers import Stack
from peerwatch_demo.stack.slurm import Slurm, folder_of_slurm, without_slurm

CONTROLLER = "controller"
# Chosen: slurmd registers within seconds; far longer on a busy machine.
_READY_SECONDS = 120.0
# Amid an exec a process shows no environment for some 0.1 ms, longer where the CPUs are busy: many
# times that.
_EXEC_SECONDS = 0.5
_LOOPBACK = "127."
_SETTINGS = {
    # A job that is requeued is looked at in seconds, not in half a minute.
    "SchedulerParameters": "nohold_on_prolog_fail,bf_interval=1,sched_interval=2",
    # A busy machine answers late. Of a node that is dead Slurm lets a job go only after this time.
    "SlurmdTimeout": "120",
    "MessageTimeout": "60",
    "KillWait": "5",
    "JobRequeue": "1",
}


def why_unavailable(*, namespaces: bool) -> str:
    """Return why Slurm cannot run the demo's job here; empty: it can."""
    if reason := without_slurm("demo RESPOND=1"):
        return reason
    try:
        address = socket.gethostbyname(socket.gethostname())
    except OSError:
        address = ""
    if not namespaces and not address.startswith(_LOOPBACK):
        return (
            f"without namespaces Slurm would listen on {address or 'every address'}: the host's "
            "name is not one of the loopback"
        )
    return ""


class SlurmJob:
    """Slurm's daemons, and the job.

    Parameters
    ----------
    nodes
        All nodes, the spare ones as well.
    ranks
        How many of them the job has.
    files
        The job's files.
    place
        Where the repository's parts are.
    stack
        What the controller is started through.
    network
        The nodes' network, with a host of its own for the controller; None: they have none.
    """

    name = "Slurm"

    def __init__(
        self,
        nodes: Sequence[Node],
        ranks: int,
        files: JobFiles,
        place: Place,
        stack: Stack,
        network: Network | None,
    ) -> None:
        self._nodes, self._ranks, self._files = nodes, ranks, files
        self._place, self._stack, self._network = place, stack, network
        root = folder_of_slurm()
        if root is None:
            raise StackError(without_slurm("demo RESPOND=1"))
        folder = stack.directory / "slurm"
        folder.mkdir()
        more = {} if network else {"CommunicationParameters": "NoCtldInAddrAny,NoInAddrAny"}
        own = socket.gethostbyname(socket.gethostname())
        self._slurm = Slurm(
            root,
            folder,
            {node.name: node.address if network else own for node in nodes},
            _SETTINGS | more,
            network.address(CONTROLLER) if network else own,
        )
        self._job = ""

    def start(self) -> str:
        """Start the daemons and submit the job; return its id.

        Raises
        ------
        StackError
            If a daemon does not come up, or the job is not taken.
        """
        slurm = self._slurm
        environment = {**os.environ, **slurm.environment}
        # When the daemons are gone: what runs steps waits for them for ever.
        self._stack.on_stop(lambda: kill_left(slurm.environment["SLURM_CONF"]))
        enter = self._network.enter(CONTROLLER) if self._network else []
        self._stack.start("slurmctld", [*enter, *slurm.controller_command], environment=environment)
        for node in self._nodes:
            node.start("slurmd", slurm.node_command(node.name), environment)
        self._stack.on_stop(self._end)
        self._wait_ready()
        self._job = slurm.order(
            *("sbatch", "--parsable", "--requeue", "--open-mode=append", "--job-name=demo"),
            *(f"--nodes={self._ranks}", "--ntasks-per-node=1"),
            f"--output={self._files.folder / 'batch.log'}",
            str(self._script()),
        ).strip()
        return self._job

    def _wait_ready(self) -> None:
        end = time.monotonic() + _READY_SECONDS
        while waits := [each for each in self._slurm.nodes if self._slurm.state(each) != "IDLE"]:
            if time.monotonic() > end:
                raise StackError(
                    f"Slurm has not seen {', '.join(waits)} within {_READY_SECONDS:g} s; see "
                    f"{self._slurm.folder}."
                )
            time.sleep(0.2)

    def _script(self) -> Path:
        path = self._files.folder / "batch.sh"
        rank = Path(__file__).with_name("rank.py")
        path.write_text(
            "#!/bin/sh\n"
            'export FIRST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
            "exec srun --kill-on-bad-exit=1 sh -c 'exec "
            f'"{self._place.python}" -P "{rank}" "{self._files.job}" '
            '--node "$SLURMD_NODENAME" --rank "$SLURM_PROCID" --ranks "$SLURM_NTASKS" '
            '--first "$FIRST" --attempt "${SLURM_RESTART_COUNT:-0}"\'\n'
        )
        path.chmod(0o755)
        return path

    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that the job runs on now; empty: it does not."""
        told = self._slurm.command(
            "squeue", "--noheader", f"--jobs={self._job}", "--states=RUNNING", "--format=%N"
        ).strip()
        listed = self._slurm.command("scontrol", "show", "hostnames", told) if told else ""
        return tuple(listed.split())

    def settings(self) -> Mapping[str, Any]:
        """Return what the responder is told of it."""
        for program in ("scontrol", "sinfo", "squeue"):
            self._slurm.script_of(program)
        cluster = {"type": "slurm", "folder": str(self._slurm.folder), "timeout_seconds": 60}
        do = ["slurm_drain", "slurm_requeue", "slurm_exclude", "slurm_start"]
        return {"cluster": cluster, "actions": {}, "do": do}

    def proof(self, node: str) -> str:
        """Return Slurm's word that a node is drained; empty: it is not."""
        state, reason = self._slurm.state(node), self._slurm.reason(node)
        return f"{node} is {state}, {reason}" if "DRAIN" in state else ""

    def _end(self) -> None:
        """End the job: its processes are no children of ours."""
        self._slurm.command("scancel", "--signal=KILL", self._job)
        self._slurm.command("scancel", self._job)


def kill_left(configuration: str) -> list[int]:
    """Kill all processes of a Slurm but this one, by its settings; return their ids.

    Parameters
    ----------
    configuration
        The path of its slurm.conf, which all of them have in their environment.
    """
    wanted = f"SLURM_CONF={configuration}".encode()
    killed: list[int] = []
    end = time.monotonic() + _EXEC_SECONDS
    while True:
        before, unsure = len(killed), False
        for folder in Path("/proc").glob("[0-9]*"):
            pid = int(folder.name)
            if pid == os.getpid() or pid in killed:
                continue
            try:
                content = (folder / "environ").read_bytes()
                if wanted in content.split(b"\0"):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                elif not content:
                    (folder / "exe").readlink()
                    unsure = True
            except OSError:
                # It has ended, is somebody else's, or has no program: a zombie, the kernel's.
                continue
        # Whoever was killed may have started another one meanwhile.
        if len(killed) == before and not (unsure and time.monotonic() < end):
            return killed
        time.sleep(0.01)
