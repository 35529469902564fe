"""Whether tests of several nodes name what is bad: network namespaces, real processes, real faults.

python -m bench.check_nodes [--nodes N]   (as root)

Each node is a namespace with a link and a cgroup of its own, and a ``peerwatch-check`` in it.
``pair`` runs on links of 80 Mbit/s while one has 20, one drops packets and one node dies in its
first pair; ``reference_training`` on links of 20 Mbit/s while one node has a slow CPU. Printed is
who was named, by whom, and after how long.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from checks_faults import UNHURRIED
from checks_program import Program
from peerwatch_common.check_results.record import Record, parse_record
from peerwatch_demo.cluster.namespaces import Network, Shape

HEALTHY = Shape(rate_bits=80_000_000, burst_bytes=65_536, limit_bytes=4_000_000)
SLOW = Shape(rate_bits=20_000_000, burst_bytes=65_536, limit_bytes=4_000_000)
# A queue of six packets: whatever comes at once is dropped and sent again.
LOSSY = Shape(rate_bits=80_000_000, burst_bytes=3_000, limit_bytes=9_000)
_CGROUP = Path("/sys/fs/cgroup/cpu")
_PERIOD_MICROSECONDS = 50_000
# CPUs of all nodes together: with a share each they are as fast as one another at any load.
_CPUS = 1.2
# As many times as much as that of any other process here, with a priority of 0.
_WEIGHT = 16 * 1024
_TIMES_AS_SLOW = 2
_RANK = "peerwatch_checks.collectives"
_SETTINGS = {
    "pair_bandwidth": {"cpu_megabytes": 1, "repeats": 5, "partners": 4},
    "reference_training": {"cpu_width": 128},
}


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a command on all nodes.

    Parameters
    ----------
    records
        By node, those of each that ended by itself.
    seconds
        Until the last one ended.
    """

    records: Mapping[str, list[Record]]
    seconds: float


class Nodes:
    """Namespaces with links and CPUs of their own.

    Parameters
    ----------
    names
        Of the nodes.
    folder
        Where their files are.
    """

    def __init__(self, names: tuple[str, ...], folder: Path) -> None:
        self.names = names
        self.network = Network(names, HEALTHY)
        self._folder = folder
        self._port = 29_533

    def cgroup(self, node: str) -> Path:
        """Return the folder of a node's cgroup."""
        return _CGROUP / f"peerwatch-check-{os.getpid()}-{node}"

    def limit_cpu(self, node: str, share: float) -> None:
        """Give a node a share of a CPU and no more, whatever else this machine does."""
        (self.cgroup(node) / "cpu.shares").write_text(str(_WEIGHT))
        quota = round(share * _PERIOD_MICROSECONDS)
        (self.cgroup(node) / "cpu.cfs_quota_us").write_text(str(quota))

    def run(self, command: str, during: Callable[[Mapping[str, int]], None]) -> Run:
        """Run a command on all nodes.

        Parameters
        ----------
        command
            Of ``peerwatch-check``.
        during
            Is given the process id of each node once all have begun.
        """
        self._port += 10
        begun = time.monotonic()
        processes = {node: self._start(node, command) for node in self.names}
        during({node: process.pid for node, process in processes.items()})
        found = {}
        for node, process in processes.items():
            text, _ = process.communicate()
            if process.returncode >= 0:
                found[node] = [parse_record(line) for line in text.splitlines()]
        return Run(found, time.monotonic() - begun)

    def _start(self, node: str, command: str) -> subprocess.Popen[str]:
        folder = self._folder / node
        folder.mkdir(exist_ok=True)
        program = Program(folder)
        program.settings["paths"]["work"] = str(folder)
        program.settings |= {"node": node, "spool": None, "folders": [], "checks": _SETTINGS}
        environment = {
            "PYTHONPATH": UNHURRIED,
            "RANK": str(self.names.index(node)),
            "WORLD_SIZE": str(len(self.names)),
            "MASTER_ADDR": self.network.address(self.names[0]),
            "MASTER_PORT": str(self._port),
        }
        enter = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.cgroup(node) / "cgroup.procs")]
        before = [*enter, *self.network.enter(node)]
        return program.start(*command.split(), "--json", before=before, **environment)


@contextmanager
def opened(count: int) -> Iterator[Nodes]:
    """Make nodes, and remove them in the end."""
    with tempfile.TemporaryDirectory() as folder:
        nodes = Nodes(tuple(f"n{number:02}" for number in range(count)), Path(folder))
        nodes.network.open()
        for node in nodes.names:
            nodes.cgroup(node).mkdir()
        try:
            yield nodes
        finally:
            nodes.network.close()
            for node in nodes.names:
                # What ends late may still be in it.
                with suppress(OSError):
                    nodes.cgroup(node).rmdir()


def kill_in_first_pair(pid: int) -> None:
    """Kill a node, with all that runs on it, as soon as a rank of a pair has begun there."""
    program = psutil.Process(pid)
    while True:
        tree = [program, *program.children(recursive=True)]
        with suppress(psutil.Error):
            if any(_RANK in each.cmdline() for each in tree):
                break
        time.sleep(0.1)
    for each in tree:
        with suppress(psutil.Error):
            each.kill()


def named(run: Run) -> dict[str, list[str]]:
    """Return what is named by failures, each with who says so."""
    found: dict[str, list[str]] = {}
    for node, records in run.records.items():
        for record in records:
            if record.status == "fail":
                found.setdefault(record.device or node, []).append(f"{node}: {record.message}")
    return found


def _print(title: str, run: Run, expected: set[str]) -> bool:
    found = named(run)
    load = os.getloadavg()[1]
    print(f"\n{title}: {run.seconds:.0f} s, load {load:.0f}")
    for name, texts in sorted(found.items()):
        print(f"  {name}: {texts[0]}")
    others = sum(
        record.status == "pass" and record.device == ""
        for node, records in run.records.items()
        if node not in found
        for record in records
    )
    statuses = [(n, r.check, r.status, r.message) for n, rs in run.records.items() for r in rs]
    for node, check, status, message in statuses:
        if status not in {"pass", "fail"}:
            print(f"  ({node} {check} {status}: {message})")
    right = found.keys() == expected
    print(f"  named {'rightly' if right else f'wrongly, expected {sorted(expected)}'}; "
          f"{others} records of other nodes passed", flush=True)  # fmt: skip
    return right


def main() -> int:
    """Run both; 0 if all is named rightly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--only", choices=("pair", "offline"))
    options = parser.parse_args()
    right = True
    with opened(options.nodes) as nodes:
        slow_link, lossy, slow_cpu, dead = nodes.names[2], nodes.names[5], *nodes.names[-2:]
        if options.only != "offline":
            nodes.network.shape(slow_link, SLOW)
            nodes.network.shape(lossy, LOSSY)
            run = nodes.run("pair", lambda pids: kill_in_first_pair(pids[dead]))
            right &= _print("pair", run, {slow_link, lossy, dead})
        if options.only != "pair":
            for node in nodes.names:
                # A fifth of a CPU sends no more than this.
                nodes.network.shape(node, SLOW)
                slow = _TIMES_AS_SLOW if node == slow_cpu else 1.0
                nodes.limit_cpu(node, _CPUS / len(nodes.names) / slow)
            run = nodes.run("reference_training", lambda _pids: None)
            right &= _print("reference_training", run, {slow_cpu})
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
