"""Nodes whose hardware is files: a training job moves them once a second, a fault slows one.

Every node is a directory with /proc, /sys, the fake driver's scenario, a kernel log and the
scheduler's mapping; a real exporter process reads it. The job is the one that all simulations
share (``peerwatch_demo.job``): when one node slows, all do, and only that one shows why.
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

from peerwatch_demo.job.activity import SIGNALS, Activity
from peerwatch_demo.job.timeline import Timeline
from peerwatch_demo.stack.servers import Process, Stack, Target, free_ports

HERE = Path(__file__).parent
FIXTURE = HERE.parent / "exporter" / "fixtures" / "h100_node"
GPUS, NICS, CPUS = 4, 2, 64
GIB = 1 << 30
# Speed of the job while a node is slow, as a share of its usual one.
SLOWED = 0.6
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


class FileNode:
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
        self.step(Activity(Timeline(), steady=True), 0.0)

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

    def step(self, activity: Activity, seconds: float) -> None:
        """Move everything on by a second.

        Parameters
        ----------
        activity
            What the job does.
        seconds
            Since its start.
        """
        self._step_cpu(activity.mean("cpu", seconds))
        self._step_gpus({name: activity.mean(name, seconds) for name in SIGNALS})
        self._step_nics(activity.mean("network", seconds))

    def _step_cpu(self, level: float) -> None:
        busy = CPUS * (level + self._offset + self._random.gauss(0, 0.01))
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

    def _step_gpus(self, levels: dict[str, float]) -> None:
        scenario = copy.deepcopy(self._scenario)
        # A GPU with a low clock is as busy as before, and draws less power.
        busy, watts = (1 / SLOWED, 0.7) if self.slowed else (1.0, 1.0)
        for now, total in zip(scenario["gpus"], self._scenario["gpus"], strict=True):
            clock = 705 if self.slowed else 1980
            utilization = 100 * busy * levels["busy"] + self._random.randint(-2, 2)
            now["utilization"] = max(0, min(100, round(utilization)))
            now["clocks"] = {"graphics": clock, "sm": clock, "memory": 2619}
            power = 700 * watts * levels["power"] + self._random.gauss(0, 6)
            now["fields"]["186"] = int(power * 1000)
            now["gpm"]["5"] = 100 * levels["tensor"] + self._random.gauss(0, 0.5)
            kib = int(110 * levels["nvlink"] * GIB / 1024)
            for field in ("138", "139"):
                total["fields"][field]["all"] += kib + self._random.randint(0, kib // 50)
                now["fields"][field] = dict(total["fields"][field])
            for field in ("197", "198"):
                total["fields"][field] += int(kib * 64)
                now["fields"][field] = total["fields"][field]
        replace_text(self.directory / "nvml.json", json.dumps(scenario))

    def _step_nics(self, level: float) -> None:
        rate = int(60 * GIB * level)
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
            FileNode(f"node-{index}", stack.directory / f"node-{index}", job_id, index)
            for index in range(size)
        ]
        self.ports = free_ports(size)
        self.exporters = [
            node.start_exporter(stack, port)
            for node, port in zip(self.nodes, self.ports, strict=True)
        ]
        self._timeline = Timeline()
        self._started = time.monotonic()
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

    def slow(self, node: int) -> None:
        """Let a node's GPUs lower their clocks, and the whole job with them."""
        self.nodes[node].slowed = True
        self._timeline.slow(SLOWED, time.monotonic() - self._started)

    def _move(self) -> None:
        due = self._started
        while not self._stop.is_set():
            # Steady: a second holds any part of a step.
            activity = Activity(self._timeline, steady=True)
            for node in self.nodes:
                node.step(activity, due - self._started)
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
