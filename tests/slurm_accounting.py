"""A real slurmdbd on one machine, over a MariaDB of its own, as root.

The distribution's programs, installed or unpacked below .tools/accounting by ``.ci/setup``.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from peerwatch_demo.stack.process import Process, free_ports
from slurm_cluster import folder_of_slurm, without_slurm

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_cluster import Cluster

UNPACKED = Path(__file__).resolve().parents[1] / ".tools" / "accounting"
_PROGRAMS = ("slurmdbd", "mariadbd")
GPUS_PER_NODE = 8
_SETTINGS = """\
AuthType=auth/none
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
PluginDir={plugins}
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={storage}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
"""
# It lives for a minute, so that nothing need reach the disk.
_SMALL_AND_FAST = (
    *("--innodb-log-file-size=4M", "--innodb-buffer-pool-size=16M", "--innodb-use-native-aio=0"),
    *("--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync"),
    *("--skip-innodb-doublewrite", "--skip-log-bin"),
)


def folder_of_accounting() -> Path | None:
    """Return the folder in which slurmdbd's and MariaDB's usr is; None: it is not there."""
    if folder_of_slurm() is None:
        return None
    for root in (Path("/"), UNPACKED):
        if all((root / "usr/sbin" / name).exists() for name in _PROGRAMS):
            return root
    return None


def without_accounting() -> str:
    """Return why there is no slurmdbd; empty: there is."""
    if folder_of_accounting() is not None:
        return ""
    return without_slurm() or "slurmdbd or MariaDB is not there: .ci/setup test unpacks them"


class Accounting:
    """A slurmdbd and its database; nobody but it can ask the database.

    Parameters
    ----------
    root
        Where usr of both is.
    folder
        Where the cluster's settings are; logs and state go there, too.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self._folder = root, folder
        self._port, self._storage = free_ports(2)
        self._libraries = next(iter(sorted(root.glob("usr/lib/*/libmariadb.so.3")))).parent
        self._processes: list[Process] = []

    @property
    def settings(self) -> dict[str, str]:
        """Lines of slurm.conf by which a cluster writes everything down, GPUs too."""
        return {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": str(self._port),
            "AccountingStorageTRES": "gres/gpu",
            "AccountingStoreFlags": "job_comment",
            "GresTypes": "gpu",
            "SelectType": "select/cons_tres",
        }

    def start(self, cluster: Cluster) -> None:
        """Start both; return when they know the cluster, which has not been started."""
        path = self._folder / "slurm.conf"
        gres = f"RealMemory=1000 Gres=gpu:{GPUS_PER_NODE}"
        path.write_text(path.read_text().replace("RealMemory=1000", gres))
        # Only what is a device counts as a GPU.
        for number in range(GPUS_PER_NODE):
            (self._folder / f"nvidia{number}").symlink_to("/dev/null")
        devices = f"{self._folder}/nvidia[0-{GPUS_PER_NODE - 1}]"
        (self._folder / "gres.conf").write_text(f"Name=gpu File={devices}\n")
        password = secrets.token_hex(16)
        self._start_database(password)
        self._start_slurmdbd(cluster, password)

        def is_known() -> bool:
            cluster.command("sacctmgr", "-i", "add", "cluster", "local")
            return "local" in cluster.command("sacctmgr", "-n", "show", "cluster")

        _wait(is_known)

    def _start_database(self, password: str) -> None:
        data = self._folder / "data"
        data.mkdir(mode=0o700)
        share = self._root / "usr/share/mysql"
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self._libraries)}
        command = [
            *(str(self._root / "usr/sbin/mariadbd"), "--no-defaults", "--user=root"),
            *(f"--datadir={data}", f"--lc-messages-dir={share}", *_SMALL_AND_FAST),
        ]
        tables = (share / "mysql_system_tables.sql").read_text()
        done = subprocess.run(
            [*command, "--bootstrap"],
            input=f"create database mysql;\nuse mysql;\n{tables}",
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        first = self._folder / "first.sql"
        first.touch(mode=0o600)
        first.write_text(
            f"create user slurm@'%' identified by '{password}';\n"
            "grant all on slurm.* to slurm@'%';\n"
        )
        addresses = [f"--socket={self._folder}/m.sock", f"--port={self._storage}"]
        addresses += ["--bind-address=127.0.0.1", "--skip-name-resolve"]
        more = [f"--pid-file={self._folder}/m.pid", f"--init-file={first}"]
        self._start("mariadbd", [*command, *addresses, *more], environment)
        # slurmdbd waits for 5 s when it is not there.
        _wait(self._database_answers)

    def _database_answers(self) -> bool:
        with socket.socket() as asking:
            return asking.connect_ex(("127.0.0.1", self._storage)) == 0

    def _start_slurmdbd(self, cluster: Cluster, password: str) -> None:
        # Its own plugins lie beside those of Slurm, or in a tree of their own.
        of_slurm = cluster.environment["LD_LIBRARY_PATH"].split(":")
        own = self._libraries / "slurm-wlm"
        path = self._folder / "slurmdbd.conf"
        path.touch(mode=0o600)
        path.write_text(
            _SETTINGS.format(
                folder=self._folder,
                host=socket.gethostname(),
                port=self._port,
                storage=self._storage,
                password=password,
                plugins=":".join(dict.fromkeys([str(own), of_slurm[0]])),
            )
        )
        libraries = ":".join(dict.fromkeys([*of_slurm, str(self._libraries)]))
        environment = {**os.environ, **cluster.environment, "LD_LIBRARY_PATH": libraries}
        self._start("slurmdbd", [str(self._root / "usr/sbin/slurmdbd"), "-D"], environment)

    def _start(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        log = self._folder / f"{name}.out"
        self._processes.append(Process.start(name, command, log, environment=environment))

    def stop(self) -> None:
        """End both."""
        for process in reversed(self._processes):
            process.stop()


def _wait(condition: Callable[[], object]) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.2)
    raise AssertionError("slurmdbd or its database did not begin to answer")
