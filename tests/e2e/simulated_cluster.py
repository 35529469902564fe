"""Nodes whose hardware is files: a workload moves them once a second, a fault bends one of them.

Every node is a directory with /proc, /sys, the fake driver's scenario, a kernel log and the
scheduler's mapping; a real exporter process reads it. The workload is synchronous, as training
is: when one node slows, its peers wait.
"""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import sys
import threading
import time
from pathlib import Path

import yaml

from peerwatch_demo.stack import Process, Stack, Target, free_ports

HERE = Path(__file__).parent
FIXTURE = HERE.parent / "exporter" / "fixtures" / "h100_node"
GPUS, NICS, CPUS = 4, 2, 64
GIB = 1 << 30
# What of /proc never changes here: the node's host network and disks are idle.
STILL = {
    "loadavg": "4.00 4.00 4.00 1/900 4242\n",
    "diskstats": "   8  0 nvme0n1 100 0 800 10 50 0 400 5 0 12 15 0 0 0 0 0 0\n",
    "net/dev": "Inter-|   Receive |  Transmit\n face |bytes packets errs drop fifo frame "
    "compressed multicast|bytes packets errs drop fifo colls carrier compressed\n"
    "  eth0: 1000 10 0 0 0 0 0 0 1000 10 0 0 0 0 0 0\n",
    "net/snmp": "Tcp: OutSegs RetransSegs\nTcp: 1000 0\n",
    "net/netstat": "TcpExt: TCPTimeouts\nTcpExt: 0\n",
    "net/tcp": "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n",
}


class SimulatedNode:
    """One node's files.

    Parameters
    ----------
    name
        Node name.
    directory
        Where its files go.
    job_id
        The training job it works for.
    seed
        Of its noise and of its permanent small offset.
    """

    def __init__(self, name: str, directory: Path, job_id: str, seed: int) -> None:
        self.name = name
        self.directory = directory
        self.slowed = False
        self._random = random.Random(seed)
        self._offset = self._random.uniform(-0.01, 0.01)
        self._cpu_busy = self._cpu_idle = 0.0
        scenario = json.loads((FIXTURE / "nvml.json").read_text())
        scenario["gpus"] = scenario["gpus"][:GPUS]
        statistics = json.loads((FIXTURE / "ethtool.json").read_text())
        self._statistics = dict(sorted(statistics.items())[:NICS])
        for index, gpu in enumerate(scenario["gpus"]):
            gpu["uuid"] = f"GPU-{name}-{index}"
        self._scenario = scenario
        self._write_skeleton(job_id)
        self.step(waiting=False)

    def _write_skeleton(self, job_id: str) -> None:
        infiniband = self.directory / "sys" / "class" / "infiniband"
        sources = sorted((FIXTURE / "sys" / "class" / "infiniband").iterdir())[:NICS]
        for source in sources:
            shutil.copytree(source, infiniband / source.name, symlinks=True)
        self._ports = [infiniband / source.name / "ports" / "1" for source in sources]
        (self.directory / "proc" / "net").mkdir(parents=True)
        for name, text in STILL.items():
            (self.directory / "proc" / name).write_text(text)
        (self.directory / "kmsg").write_text("")
        jobs = self.directory / "jobs"
        jobs.mkdir()
        for name in ("node", *map(str, range(GPUS))):
            (jobs / name).write_text(f"{job_id}\n")

    def step(self, *, waiting: bool) -> None:
        """Move everything on by a second.

        Parameters
        ----------
        waiting
            Whether the node waits for a slower one in every collective.
        """
        self._step_cpu(waiting=waiting)
        self._step_gpus(waiting=waiting)
        self._step_nics(waiting=waiting)

    def _step_cpu(self, *, waiting: bool) -> None:
        busy = CPUS * (0.25 + self._offset + self._random.gauss(0, 0.01) - 0.02 * waiting)
        self._cpu_busy += busy
        self._cpu_idle += CPUS - busy
        ticks = f"{self._cpu_busy * 100:.0f} 0 0 {self._cpu_idle * 100:.0f} 0 0 0 0 0 0"
        rows = [f"cpu  {ticks}", *(f"cpu{index} 0 0 0 0 0 0 0 0 0 0" for index in range(CPUS))]
        proc = self.directory / "proc"
        replace_text(proc / "stat", "\n".join([*rows, "ctxt 1", "btime 1700000000"]) + "\n")
        replace_text(
            proc / "meminfo",
            f"MemTotal: {2048 * GIB // 1024} kB\nMemAvailable: "
            f"{int((1500 + self._random.gauss(0, 4)) * GIB) // 1024} kB\n",
        )

    def _step_gpus(self, *, waiting: bool) -> None:
        scenario = copy.deepcopy(self._scenario)
        for now, total in zip(scenario["gpus"], self._scenario["gpus"], strict=True):
            clock = 705 if self.slowed else 1980
            busy = 70 if waiting else 97
            watts = (260 if self.slowed else 430 if waiting else 620) + self._random.gauss(0, 6)
            now["utilization"] = max(0, min(100, busy + self._random.randint(-2, 2)))
            now["clocks"] = {"graphics": clock, "sm": clock, "memory": 2619}
            now["fields"]["186"] = int(watts * 1000)
            now["gpm"]["5"] = (28 if self.slowed or waiting else 47) + self._random.gauss(0, 0.5)
            kib = int((40 if waiting or self.slowed else 80) * GIB / 1024)
            for field in ("138", "139"):
                total["fields"][field]["all"] += kib + self._random.randint(0, kib // 50)
                now["fields"][field] = dict(total["fields"][field])
            for field in ("197", "198"):
                total["fields"][field] += int(kib * 64)
                now["fields"][field] = total["fields"][field]
        replace_text(self.directory / "nvml.json", json.dumps(scenario))

    def _step_nics(self, *, waiting: bool) -> None:
        rate = 12 * GIB if waiting or self.slowed else 22 * GIB
        for port in self._ports:
            for counter in ("port_rcv_data", "port_xmit_data"):
                path = port / "counters" / counter
                replace_text(path, f"{int(path.read_text()) + rate // 4}\n")
        for table in self._statistics.values():
            table["tx_prio3_pause"] += self._random.randint(0, 20)
        replace_text(self.directory / "ethtool.json", json.dumps(self._statistics))

    def start_exporter(self, stack: Stack, port: int) -> Process:
        """Start the node's exporter."""
        config = self.directory / "exporter.yaml"
        roots = {
            name: str(self.directory / leaf)
            for name, leaf in (("procfs", "proc"), ("sysfs", "sys"), ("kmsg", "kmsg"))
        }
        settings = {
            "listen": {"address": "127.0.0.1", "port": port},
            "paths": roots,
            "jobs": {"mapping_directory": str(self.directory / "jobs")},
        }
        config.write_text(yaml.safe_dump(settings))
        return stack.start(
            f"exporter-{self.name}",
            [sys.executable, str(HERE / "simulated_node.py"), str(self.directory), str(config)],
            environment=os.environ | {"PYTHONPATH": python_path()},
            ready=f"http://127.0.0.1:{port}/-/ready",
        )


class Cluster:
    """A job on some simulated nodes, moved once a second by a thread."""

    def __init__(self, stack: Stack, job_id: str, size: int) -> None:
        self.job_id = job_id
        self.nodes = [
            SimulatedNode(f"node-{index}", stack.directory / f"node-{index}", job_id, index)
            for index in range(size)
        ]
        self.ports = free_ports(size)
        self.exporters = [
            node.start_exporter(stack, port)
            for node, port in zip(self.nodes, self.ports, strict=True)
        ]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._move, daemon=True)
        self._thread.start()
        stack.on_stop(self._end)

    @property
    def targets(self) -> list[Target]:
        """What Prometheus scrapes."""
        return [
            Target(
                "peerwatch-exporter", f"127.0.0.1:{port}", {"node": node.name, "cluster": "test"}
            )
            for node, port in zip(self.nodes, self.ports, strict=True)
        ]

    def _move(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            slow = any(node.slowed for node in self.nodes)
            for node in self.nodes:
                node.step(waiting=slow and not node.slowed)
            due += 1
            self._stop.wait(max(0, due - time.monotonic()))

    def _end(self) -> None:
        self._stop.set()
        self._thread.join()


def replace_text(path: Path, text: str) -> None:
    """Replace a file whole: a reader sees the old text or the new one."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    partial.replace(path)


def python_path() -> str:
    """Return the PYTHONPATH of child processes: this interpreter's own search path."""
    root = HERE.parent.parent
    own = [str(root / name) for name in ("exporter", "detector", "tests")]
    return os.pathsep.join(own)
