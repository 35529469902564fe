"""Whatever the kernel's files and drivers' tables hold: declared exceptions, bounded labels."""

from __future__ import annotations

import contextlib
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_ethtool import FakeEthtool
from hardware_cases import FakeClock
from pci_tree import GPU, NIC, PciFiles
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths
from peerwatch_exporter.sources.host.pci_link import PciLinks
from peerwatch_exporter.sources.host.procfs import GarbledFileError
from peerwatch_exporter.sources.host.sysfs import Sysfs
from peerwatch_exporter.sources.nic.drivers import STATISTICS
from peerwatch_exporter.sources.nic.ethtool import SelectedStatistics, StatisticsChangedError
from procfs_tree import ProcTree

# Content near what is expected reaches further than content that is anything.
_WORDS = rb"""
cpu cpu0 ctxt btime procs_blocked MemTotal: MemAvailable: kB some full total= Tcp: TcpExt: OutSegs
RetransSegs TCPTimeouts TCP: inuse eth0: sda 8 0 -1 63 255 18446744073709551616 1.5 nan inf 1e999
0x10 : N/A Unknown RxErr TOTAL_ERR_FATAL
"""
_PHRASES = (b"4: ACTIVE", b"400 Gb/sec (4X NDR)", b"32.0 GT/s PCIe", b"TCP: inuse 1", b"RxErr 1")
# Digits that are digits to str.isdigit, or too many; bytes that are no text.
_TRAPS = (b"\xc2\xb2", b"\xd9\xa1", b"9" * 400, b"9" * 4000, b"\xff\xfe", b"\0", b"\n", b" ", b"\t")
PIECES = st.sampled_from([*_WORDS.split(), *_PHRASES, *_TRAPS, b"\n", b"\n\n"])
CONTENT = st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=40).map(b" ".join), PIECES)
REGISTERED = registrations()
PROC = {
    "cpu": ["stat", "loadavg"],
    "disk": ["diskstats"],
    "memory": ["meminfo"],
    "network": ["net/dev"],
    "pressure": ["pressure/cpu", "pressure/io", "pressure/memory"],
    "tasks": ["sys/kernel/hung_task_detect_count", "1/stat"],
    "tcp": ["net/snmp", "net/netstat", "net/tcp", "net/tcp6", "net/sockstat", "net/sockstat6"],
}
PORT_FILES = ["state", "phys_state", "rate", "link_layer", "gid_attrs/ndevs/0"]
COUNTER_FILES = ["counters/port_rcv_data", "counters/symbol_error", "hw_counters/np_cnp_sent"]
FUNCTION_FILES = [
    *("class", "vendor", "device", "numa_node", "config"),
    *("current_link_speed", "max_link_speed", "current_link_width", "max_link_width"),
    *("aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal"),
]


def rows_of(name, root, ethtool=None):
    """Return all rows of a collector, after checking that each can be rendered."""
    paths = Paths(root / "proc", root / "sys", root / "kmsg")
    clock = FakeClock()
    sources = Sources(paths, clock=clock, monotonic=clock, ethtool=ethtool or FakeEthtool())
    collector = REGISTERED[name].factory(ExporterConfig(), sources)
    rows = []
    with contextlib.suppress(NoData, PartialData):
        for family in collector.collect():
            for labels, value in family.rows:
                assert len(family.spec.labels) == len(labels)
                assert math.isfinite(float(value))
                assert "".join(labels).encode("utf-8") is not None
                rows.append((family.spec.name, *labels))
    assert len(set(rows)) == len(rows)
    return rows


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def put(root, name, content):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.mark.parametrize("name", sorted(PROC))
@given(data=st.data())
def test_no_file_of_the_machine_breaks_a_collector(name, data):
    with folder() as root:
        proc = ProcTree(root / "proc").machine(pressure=True)
        proc.process(1)
        for file in data.draw(st.sets(st.sampled_from(PROC[name]), min_size=1)):
            put(root / "proc", file, data.draw(CONTENT))
        try:
            rows = rows_of(name, root)
        except GarbledFileError:
            return
    assert len(rows) < 100


@pytest.mark.parametrize("name", ["nic", "nic_errors", "ethtool"])
@given(data=st.data())
def test_no_file_of_a_port_breaks_a_collector(name, data):
    with folder() as root:
        base = root / "sys/class/infiniband/mlx5_0"
        for file in (*PORT_FILES, *COUNTER_FILES):
            put(base / "ports/1", file, data.draw(CONTENT))
        for file in ("fw_ver", "board_id", "device/net/eth0/dev_port"):
            put(base, file, data.draw(CONTENT))
        rows = rows_of(name, root)

    assert len(rows) < 20


@given(data=st.data())
def test_no_file_of_a_function_breaks_a_collector(data):
    with folder() as root:
        files = PciFiles(root / "sys")
        known = files.add("pci0000:15/0000:15:01.0/0000:16:00.0", GPU)
        other = files.add("pci0000:15/0000:15:01.0/0000:17:00.0", NIC)
        for file in data.draw(st.sets(st.sampled_from(FUNCTION_FILES), min_size=1)):
            for bdf in (known, other):
                files.write(bdf, **{file: data.draw(CONTENT)})
        rows = rows_of("pcie", root)

    assert len(rows) <= 3 * 16


@given(content=CONTENT)
def test_only_known_types_of_errors_become_labels(content):
    with folder() as root:
        files = PciFiles(root)
        bdf = files.add("pci0000:15/0000:15:01.0", GPU)
        for severity in ("correctable", "nonfatal", "fatal"):
            files.write(bdf, **{f"aer_dev_{severity}": content})
        errors = PciLinks(Sysfs(root)).errors(bdf)

    assert {"RxErr", "total"} >= {kind for _, kind, _ in errors}
    assert all(0 <= count < 10**20 for *_, count in errors)


@pytest.mark.parametrize(
    "method",
    ["integer", "state", "bytes_per_second", "transfers_per_second", "counters_by_name", "text"],
)
@given(content=CONTENT)
def test_no_value_of_sysfs_raises(method, content):
    with folder() as root:
        put(root, "value", content)
        for keep in (0, 4):
            sysfs = Sysfs(root, keep_open=keep)
            first = getattr(sysfs, method)("value")
            assert first == getattr(sysfs, method)("value")
            if isinstance(first, int | float):
                assert math.isfinite(float(first))


class AnyTable:
    """A driver that says whatever was drawn, each time anew."""

    def __init__(self, draw):
        self._draw = draw

    def names(self, interface):
        known = st.sampled_from(sorted(STATISTICS))
        return self._draw(st.lists(known | st.text(max_size=40), max_size=20))

    def values(self, interface):
        return self._draw(st.lists(st.integers(0, 2**64 - 1), max_size=20))


@given(data=st.data())
def test_no_table_of_a_driver_breaks_the_choice(data):
    statistics = SelectedStatistics(AnyTable(data.draw), STATISTICS.get, FakeClock())
    for _ in range(3):
        with contextlib.suppress(StatisticsChangedError):
            keys, values = statistics.columns("eth0")
            assert len(keys) == len(values) == len(set(keys))


@given(data=st.data())
def test_no_table_of_a_driver_breaks_the_collector(data):
    with folder() as root:
        put(root / "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs", "0", b"eth0\n")
        try:
            rows = rows_of("ethtool", root, AnyTable(data.draw))
        except StatisticsChangedError:
            return
    assert len(rows) <= len(STATISTICS)


@settings(max_examples=5)
@given(number=st.integers(2_000, 10_000))
def test_flood_of_a_driver_s_statistics_adds_no_series(number):
    table = {f"made_up_{at}": at for at in range(number)} | dict.fromkeys(STATISTICS, 1)
    with folder() as root:
        put(root / "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs", "0", b"eth0\n")
        rows = rows_of("ethtool", root, FakeEthtool({"eth0": table}))

    assert len(set(STATISTICS.values())) == len(rows)
