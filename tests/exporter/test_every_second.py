"""What detection compares is read every second; what is read less often is declared so."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from each_case import each_case
from fake_driver import FakeDriver
from fake_ethtool import FakeEthtool
from hardware_cases import FakeClock, scenario_of
from peerwatch_demo.simulated_node.nvml_library import install
from peerwatch_exporter.catalog.fast import SPECS as FAST
from peerwatch_exporter.collector import all_metrics, registrations
from peerwatch_exporter.schedule.fast_metrics import TABLE
from peerwatch_exporter.schedule.runner import Runner
from peerwatch_exporter.schedule.worker_set import make_workers
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths
from procfs_tree import ProcTree

CATALOG = all_metrics()
EVERY = {
    spec.name: max(item.interval_seconds, spec.every_seconds)
    for item in registrations().values()
    for spec in item.metrics
}
RULES = Path(__file__).parents[2] / "rules"
PRESET = yaml.safe_load(
    files("peerwatch_detector.config.presets").joinpath("peerwatch.yaml").read_text()
)
EXPRESSIONS = [
    PRESET["discovery"]["job_info"],
    *(metric["expression"] for metric in (*PRESET["progress"], *PRESET["metrics"])),
]
COMPARED = {name for name in re.findall(r"\w+", " ".join(EXPRESSIONS)) if name in EVERY}
PUBLISHED_FAST = {name for metric in TABLE for name in metric.metrics}
# Of every process of a rank four files are read: at 5 s from the beginning.
USE = {"rank_cpu_seconds_total": 5, "rank_memory_resident_bytes": 5}


def test_what_is_compared_is_found():
    assert {"gpu_power_watts", "nic_cnp_sent_total", "rank_steps_total"} <= COMPARED
    assert len(COMPARED) > 25
    assert {spec.name for spec in FAST if not spec.name.startswith("fast_fine_")} == {
        "fast_up",
        *(metric.name for metric in TABLE),
    }


@each_case("name", sorted(COMPARED | PUBLISHED_FAST))
def test_what_detection_or_the_fast_endpoint_uses_is_read_every_second(name):
    assert USE.get(name, 1) == EVERY[name]


def test_no_rule_takes_less_than_30_s_of_what_is_read_less_often():
    short = {
        metric
        for path in RULES.rglob("*.yaml")
        for metric, seconds in re.findall(r"(\w+)(?:\{[^}]*\})?\[(\d+)s\]", path.read_text())
        if int(seconds) < 30
    }
    assert "nic_cnp_sent_total" in short
    assert {name for name in short if EVERY.get(name, 1) > 1} <= USE.keys()


@each_case("name", sorted(name for name in EVERY if EVERY[name] > 1))
def test_a_metric_is_read_as_often_as_its_collector_or_less(name):
    (collector,) = (
        item for item in registrations().values() if name in {s.name for s in item.metrics}
    )
    declared = CATALOG[name].every_seconds
    assert declared == 0 or declared > collector.interval_seconds


class MovingNode:
    """A node of which everything is another in each second."""

    def __init__(self, root):
        self.clock, self.now = FakeClock(), FakeClock()
        self.proc = ProcTree(root / "proc")
        self.port = root / "sys/class/infiniband/mlx5_0/ports/1"
        self.heartbeats = root / "heartbeats"
        self.heartbeats.mkdir()
        self.scenario = scenario_of("h100_node")
        self.scenario["gpus"] = self.scenario["gpus"][:2]
        self.statistics = {}
        self.move(0)
        self.sources = Sources(
            Paths(procfs=root / "proc", sysfs=root / "sys", kmsg=root / "kmsg"),
            clock=self.now,
            monotonic=self.clock,
            ethtool=FakeEthtool({"eth0": self.statistics}),
        )
        self.config = ExporterConfig(
            heartbeat={"directory": self.heartbeats}, jobs={"pod_resources_socket": None}
        )

    def move(self, second):
        """Let everything be another than before; ticks are a little early or late."""
        self.clock.now = 1000.0 + second + 0.05 * (-1) ** second
        self.now.now = 1_800_000_000.0 + second
        self._move_host(second)
        self._move_port(second)
        for board in self.scenario["gpus"]:
            self._move_gpu(board, second)
        self.statistics |= dict.fromkeys(
            ("tx_prio3_pause", "rx_prio3_pause", "tx_prio3_pause_duration", "rx_discards_phy"),
            10_000_000 * (1 + second),
        )

    def _move_host(self, second):
        heartbeat = {"rank": 0, "job_id": f"job{second}", "step": second, "time": self.now.now}
        (self.heartbeats / "rank-0.json").write_text(json.dumps(heartbeat))
        self.proc.machine()
        more = {
            "stat": ("cpu  400000", f"cpu  {400000 + 100 * second}"),
            "meminfo": ("8192000", f"{8192000 + second}"),
            "loadavg": ("1.50", f"{second}.50"),
            "net/snmp": ("80000 123", f"{80000 + second} {123 + second}"),
            "net/tcp": ("00000100:00000010", f"{256 + second:08x}:00000010"),
            "net/dev": ("5000000    4000", f"{5000000 + second} {4000 + second}"),
        }
        for name, (before, after) in more.items():
            text = (self.proc.root / name).read_text()
            assert before in text
            self.proc.write(name, text.replace(before, after).replace("7000000", f"{7 + second}"))
        cpus = "".join(f"cpu{9 + cpu} 1 0 0 0\n" for cpu in range(second))
        self.proc.write(
            "stat", (self.proc.root / "stat").read_text().replace("intr", f"{cpus}intr")
        )
        text = (self.proc.root / "meminfo").read_text()
        self.proc.write("meminfo", text.replace("16384000", f"{16384000 + second}"))

    def _move_port(self, second):
        for name in ("port_rcv_data", "port_xmit_data", "port_rcv_packets"):
            self._write(f"counters/{name}", second)
        for name in ("np_cnp_sent", "np_ecn_marked_roce_packets", "out_of_sequence"):
            self._write(f"hw_counters/{name}", second)
        self._write("state", f"{4 + second % 2}: ACTIVE")
        self._write("gid_attrs/ndevs/0", "eth0")

    def _write(self, name, value):
        path = self.port / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")

    def _move_gpu(self, board, second):
        board["utilization"] = second
        board["memory"] = dict.fromkeys(("total", "used", "reserved"), 1 + second << 30)
        board["temperature"], board["power_limit"] = 40 + second, 700_000 + second
        board["clocks"] = dict.fromkeys(("graphics", "sm", "memory"), 1000 + second)
        board["gpm"] = dict.fromkeys(board["gpm"], 10.0 + second)
        board["fields"] |= dict.fromkeys(("186", "197", "198"), 1000 * (1 + second))
        board["fields"] |= {number: {"all": 1 + second} for number in ("138", "139")}


@pytest.fixture(scope="module")
def readings(tmp_path_factory):
    """Return, by metric, what each of 16 snapshots of a moving node has."""
    moving = MovingNode(tmp_path_factory.mktemp("moving"))
    found = {}
    with install(moving.scenario):
        driver = FakeDriver(moving.config, moving.sources)
        workers = make_workers(moving.config, moving.sources, registrations(), driver)
        runner = Runner(workers, moving.sources, deadline_seconds=60, version="0.0.0")
        for second in range(16):
            moving.move(second)
            for item in runner.tick().families:
                found.setdefault(item.spec.name, {})[second] = list(item.rows)
        runner.stop()
    return found


# Of processes there is none, and nobody's collectives are asked for; sockets are listed less often
# where that takes the machine long.
STANDING = {"gpu_job_info", "collective_completed_total", "host_tcp_send_queue_bytes", *USE}


@pytest.mark.parametrize("name", sorted((COMPARED | PUBLISHED_FAST) - STANDING))
def test_a_new_value_is_seen_in_the_same_second(readings, name):
    seen = readings[name]
    assert all(seen[second] != seen[second - 1] for second in range(2, 16)), seen


@pytest.mark.parametrize(
    "name",
    [
        *("gpu_power_limit_watts", "gpu_temperature_celsius", "gpu_sm_active_ratio"),
        *("nic_port_state", "nic_receive_packets_total", "nic_out_of_sequence_packets_total"),
        *("host_load1", "host_network_receive_packets_total", "nic_receive_discards_total"),
    ],
)
def test_what_is_declared_for_5_s_is_read_every_5_s(readings, name):
    assert EVERY[name] == 5
    seen = readings[name]
    # Not in the first two seconds, in which it takes its turn among what is read rarely.
    changes = [second for second in range(6, 16) if seen[second] != seen[second - 1]]
    assert len(changes) == 2
    assert changes[1] - changes[0] == 5


def test_what_is_read_rarely_is_not_all_read_in_the_same_second(readings):
    rarely = [name for name in readings if EVERY.get(name) == 5 and len(readings[name]) == 16]
    busy = {
        second % 5
        for name in rarely
        for second in range(6, 16)
        if readings[name][second] != readings[name][second - 1]
    }
    assert len(busy) >= 4
