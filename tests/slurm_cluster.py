"""A real Slurm with several nodes on one machine: slurmctld and one slurmd a node, as root."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from peerwatch_demo.stack.process import Process
from peerwatch_demo.stack.slurm import Slurm, folder_of_slurm, without_slurm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["Cluster", "folder_of_slurm", "without_slurm"]

_REGISTERED = ("IDLE", "IDLE+DRAIN")


class Cluster(Slurm):
    """Slurm with nodes n1, n2 and so on, all of them this machine.

    Parameters
    ----------
    root
        Where Slurm's usr is.
    folder
        Where its settings, logs and state are.
    nodes
        How many.
    settings
        Further lines of slurm.conf, by name.
    """

    def __init__(self, root: Path, folder: Path, nodes: int, settings: Mapping[str, str]) -> None:
        names = {f"n{number + 1}": "127.0.0.1" for number in range(nodes)}
        more = {"SchedulerParameters": "nohold_on_prolog_fail"}
        super().__init__(root, folder, names, {**more, **settings})
        self._processes: list[Process] = []
        self._node_processes: dict[str, Process] = {}

    def start(self) -> None:
        """Start all daemons; return when all nodes have registered."""
        self._start(self.controller_command, "slurmctld")
        for node in self.nodes:
            self._node_processes[node] = self._start(self.node_command(node), "slurmd")
        self.wait_for(lambda: all(self.state(each) in _REGISTERED for each in self.nodes))

    def _start(self, command: list[str], program: str) -> Process:
        log = self.folder / f"{program}.out"
        environment = {**os.environ, **self.environment}
        process = Process.start(program, command, log, environment=environment)
        self._processes.append(process)
        return process

    def kill(self, node: str) -> None:
        """Kill the slurmd of a node; steps of jobs that run there go on."""
        self._node_processes[node].kill()

    def stop(self) -> None:
        """End all jobs and daemons."""
        self.command("scancel", "--user=root", "--signal=KILL")
        for process in reversed(self._processes):
            process.stop()

    def submit(self, node: str, script: str) -> int:
        """Submit a job for a node; return its id."""
        arguments = ("--parsable", f"--nodelist={node}", "--output=%j.%J.out", "--requeue")
        return int(self.command("sbatch", *arguments, f"--wrap={script}"))

    def job(self, job: int) -> str:
        """Return a job's state, such as ``RUNNING``."""
        return self.command(
            "squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"
        ).strip()

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until something holds."""
        for _ in range(2400):
            if condition():
                return
            time.sleep(0.1)
        raise AssertionError(f"it did not happen: {self.command('scontrol', 'show', 'node')}")
