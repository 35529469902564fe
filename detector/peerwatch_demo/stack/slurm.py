"""A real Slurm on one machine: slurmctld and a slurmd for each node, as root, without munge.

The distribution's programs, on PATH or unpacked below .tools/slurm by ``.ci/setup``.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from peerwatch_demo.stack.process import StackError, free_ports

UNPACKED = Path(__file__).resolve().parents[3] / ".tools" / "slurm"
_PROGRAMS = ("slurmctld", "slurmd", "slurmstepd")
# As long as any server may take to start (process.py).
_COMMAND_SECONDS = 300.0
# Of processes as this user, without cgroups and without munge.
_CONFIG = """\
ClusterName=local
SlurmctldHost={host}({controller})
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/none
CredType=cred/none
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=1
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def folder_of_slurm() -> Path | None:
    """Return the folder in which Slurm's usr is; None: it is not there, or not for this user."""
    if os.geteuid() != 0:
        return None
    for root in (Path("/"), UNPACKED):
        if all(_program(root, name).exists() for name in _PROGRAMS):
            return root
    return None


def without_slurm(setup: str = "test") -> str:
    """Return why there is no Slurm; empty: there is. ``setup``: what fetches it."""
    if folder_of_slurm() is not None:
        return ""
    if os.geteuid() != 0:
        return "Slurm's daemons start jobs as their users: only root can try them"
    apt = "" if shutil.which("apt-get") else ", and there is no apt-get to fetch it with"
    return f"Slurm is not installed{apt}: .ci/setup {setup} unpacks it"


def _program(root: Path, name: str) -> Path:
    """Return where a daemon is: Debian's have a suffix until they are installed."""
    plain = root / "usr/sbin" / name
    return plain if plain.exists() else plain.with_name(f"{name}-wlm")


class Slurm:
    """Slurm's settings, commands and daemons; whoever uses it starts the daemons.

    Parameters
    ----------
    root
        Where Slurm's usr is.
    folder
        Where its settings, logs and state are; exists.
    nodes
        Names of the nodes, and the addresses of their slurmd.
    settings
        Further lines of slurm.conf, by name.
    controller
        The address of slurmctld.
    """

    def __init__(
        self,
        root: Path,
        folder: Path,
        nodes: Mapping[str, str],
        settings: Mapping[str, str],
        controller: str = "127.0.0.1",
    ) -> None:
        self._root, self.folder = root, folder
        self.nodes = list(nodes)
        (library,) = root.glob("usr/lib/*/slurm-wlm")
        self.environment = {
            "PATH": f"{root / 'usr/bin'}:/usr/bin:/bin",
            "SLURM_CONF": str(folder / "slurm.conf"),
            "LD_LIBRARY_PATH": f"{library}:{library.parent}",
        }
        host = socket.gethostname()
        port, *ports = free_ports(len(nodes) + 1)
        text = _CONFIG.format(
            host=host, controller=controller, port=port, folder=folder, plugins=library
        )
        text += "".join(f"{name}={value}\n" for name, value in settings.items())
        for (node, address), its_port in zip(nodes.items(), ports, strict=True):
            text += f"NodeName={node} NodeHostname={host} NodeAddr={address} "
            text += f"Port={its_port} CPUs=4 RealMemory=1000\n"
            (folder / "spool" / node).mkdir(parents=True)
        (folder / "state").mkdir()
        (folder / "slurm.conf").write_text(text)
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")

    @property
    def controller_command(self) -> list[str]:
        """What runs slurmctld."""
        return [self._daemon("slurmctld"), "-D", "-i", *self._settings]

    def node_command(self, node: str) -> list[str]:
        """Return what runs the slurmd of a node."""
        stepd = self._daemon("slurmstepd")
        return [self._daemon("slurmd"), "-D", "-N", node, "-d", stepd, *self._settings]

    def _daemon(self, name: str) -> str:
        """Return a path of a daemon that ends in its name: by that it knows what it is."""
        path = _program(self._root, name)
        if path.name == name:
            return str(path)
        link = self.folder / name
        if not link.is_symlink():
            link.symlink_to(path)
        return str(link)

    @property
    def _settings(self) -> tuple[str, str]:
        return "-f", str(self.folder / "slurm.conf")

    def command(self, program: str, *arguments: str) -> str:
        """Return what one of Slurm's commands prints."""
        return self._run(program, arguments).stdout

    def order(self, program: str, *arguments: str) -> str:
        """Return what one of Slurm's commands prints.

        Raises
        ------
        StackError
            If it fails.
        """
        done = self._run(program, arguments)
        if done.returncode != 0:
            raise StackError(f"{program} {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def _run(self, program: str, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._root / "usr/bin" / program), *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )

    def script_of(self, program: str) -> Path:
        """Return a script that runs one of Slurm's commands wherever its files are."""
        path = self.folder / program
        lines = [f"export {name}={value!r}" for name, value in self.environment.items()]
        command = f'exec {self._root / "usr/bin" / program} "$@"'
        path.write_text("\n".join(["#!/bin/sh", *lines, command, ""]))
        path.chmod(0o755)
        return path

    def state(self, node: str) -> str:
        """Return a node's state, such as ``IDLE`` or ``IDLE+DRAIN``."""
        return self._of_node(node, "State")

    def reason(self, node: str) -> str:
        """Return why a node is drained; empty: it is not."""
        return self._of_node(node, "Reason")

    def _of_node(self, node: str, name: str) -> str:
        lines = self.command("scontrol", "show", "node", node).splitlines()
        for line in map(str.strip, lines):
            if line.startswith(f"{name}="):
                text = line.removeprefix(f"{name}=")
                return text.rpartition(" [")[0] if name == "Reason" else text.split()[0]
        return ""
