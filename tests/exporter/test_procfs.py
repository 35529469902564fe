"""Reads of /proc: the machine's files, broken ones, and what lies outside of the fixtures."""

from __future__ import annotations

import contextlib
import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_exporter.collectors.pressure import PressureCollector
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import Sources, real_sources
from peerwatch_exporter.sources.host import procfs
from peerwatch_exporter.sources.host.access import Paths
from peerwatch_exporter.sources.host.procfs import GarbledFileError, Procfs
from peerwatch_exporter.sources.host.usage import usage_source
from peerwatch_exporter.sources.jobs.ranks import job_of, rank_identity
from procfs_tree import BOOT_TIME, ProcTree


@pytest.fixture
def tree(tmp_path):
    return ProcTree(tmp_path).machine()


@pytest.mark.parametrize(
    "name", ["sda", "vda", "xvdb", "hda", "nvme0n1", "mmcblk0", "dm-0", "md127", "sdaa"]
)
def test_disk_is_counted(tree, name):
    tree.write("diskstats", f"8 0 {name} 1 0 2 3 4 0 6 7 0 9000 1\n")
    stat = Procfs(tree.root).disks()[name]
    assert (1024, 3072, 9.0) == (stat.read_bytes, stat.written_bytes, stat.io_seconds)


@pytest.mark.parametrize(
    "name", ["sda1", "vda15", "nvme0n1p2", "mmcblk0p1", "loop7", "ram0", "zram1", "sr0"]
)
def test_partition_or_memory_is_not_a_disk(tree, name):
    tree.write("diskstats", f"8 0 {name} 1 0 2 3 4 0 6 7 0 9000 1\n")
    assert {} == Procfs(tree.root).disks()


def test_garbled_file_names_itself_and_the_line(tree):
    tree.write("meminfo", "MemTotal: lots\n")
    with pytest.raises(GarbledFileError, match=r"meminfo .* 'MemTotal: lots'"):
        Procfs(tree.root).meminfo()


@pytest.mark.parametrize("read", ["stat", "load1", "meminfo", "disks", "interfaces", "pressure"])
@given(text=st.text(st.characters(codec="ascii"), max_size=200))
def test_no_content_breaks_a_read_in_another_way(tmp_path_factory, read, text):
    root = tmp_path_factory.mktemp("proc")
    tree = ProcTree(root)
    for name in ("stat", "loadavg", "meminfo", "diskstats", "net/dev", "pressure/cpu"):
        tree.write(name, text)
    with contextlib.suppress(GarbledFileError):
        getattr(Procfs(root), read)()


def test_queues_count_established_connections_only(tree):
    queues = Procfs(tree.root).tcp_queues()
    assert (0x100 + 0x200, 0x10 + 0x20) == (queues.send_bytes, queues.receive_bytes)


def test_kernel_without_ipv6_has_queues(tree):
    for name in ("tcp6", "sockstat6"):
        (tree.root / "net" / name).unlink()
    assert 0x100 == Procfs(tree.root).tcp_queues().send_bytes


def test_list_of_sockets_is_not_walked_where_there_are_none(tree):
    tree.write("net/sockstat6", "TCP6: inuse 0\n")
    (tree.root / "net" / "tcp6").unlink()
    assert 0x100 == Procfs(tree.root).tcp_queues().send_bytes


def test_only_wanted_counters_of_a_protocol_are_returned(tree):
    tree.write("net/netstat", "TcpExt: Other TCPTimeouts\nTcpExt: -1 17\n")
    procfs = Procfs(tree.root)
    assert {"TCPTimeouts": 17} == procfs.protocol_counters(
        "netstat", "TcpExt", ("TCPTimeouts", "TCPSynRetrans")
    )
    assert {"Other": -1, "TCPTimeouts": 17} == procfs.protocol_counters("netstat", "TcpExt")


def test_real_machine_can_be_read():
    procfs = Procfs(real_sources(ExporterConfig()).paths.procfs)
    stat = procfs.stat()
    assert stat.cpus >= 1
    assert stat.cpu_seconds["user"] > 0
    assert 0 < procfs.meminfo()["MemAvailable"] <= procfs.meminfo()["MemTotal"]
    assert "lo" in procfs.interfaces()
    assert procfs.protocol_counters("snmp", "Tcp")["OutSegs"] >= 0
    assert procfs.protocol_counters("netstat", "TcpExt")["TCPTimeouts"] >= 0
    assert procfs.tcp_queues().send_bytes >= 0
    assert procfs.load1() >= 0
    procfs.disks()


def test_idle_time_that_steps_back_stands_still(tree):
    usage = usage_source(ExporterConfig(), Sources(Paths(tree.root, tree.root, tree.root)))
    procfs = Procfs(tree.root)
    seen = []
    for idle in (20000_00, 20000_00 - 50, 20000_00 + 10, 100):
        tree.write("stat", f"cpu 1 0 1 {idle} 0 0 0 0\ncpu0 1 0 1 {idle}\nctxt 1\nbtime 1\n")
        seen.append(usage.cpu(procfs.stat()).seconds["idle"])
    # The last one is a CPU taken offline: a new count, not a jitter.
    assert [20000.0, 20000.0, 20000.1, 1.0] == seen


def test_kernel_with_psi_switched_off_has_no_pressure(tmp_path, monkeypatch):
    def refuse(_):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(procfs, "read_whole", refuse)
    with pytest.raises(NoData, match="psi=0"):
        list(
            PressureCollector(
                ExporterConfig(), Sources(Paths(tmp_path, tmp_path, tmp_path))
            ).collect()
        )


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8, 1, "torch")),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}, (2, 4, 0, "slurm")),
        (
            {"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"},
            (3, 8, None, "torch"),
        ),
    ],
    ids=["torchrun", "srun", "torchrun below srun"],
)
def test_environment_names_the_rank(environment, expected):
    found = rank_identity(environment)
    assert expected == (found.rank, found.world_size, found.local_rank, found.launcher)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"RANK": "0"},
        {"WORLD_SIZE": "2"},
        {"RANK": "2", "WORLD_SIZE": "2"},
        {"RANK": "-1", "WORLD_SIZE": "2"},
        {"RANK": "first", "WORLD_SIZE": "2"},
        {"RANK": "9" * 40, "WORLD_SIZE": "9" * 41},
    ],
)
def test_environment_without_a_valid_rank_names_none(environment):
    assert rank_identity(environment) is None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"SLURM_JOB_ID": "7", "TORCHELASTIC_RUN_ID": "t"}, ("7", "slurm")),
        ({"PEERWATCH_JOB_ID": "p", "SLURM_JOB_ID": "7"}, ("p", "peerwatch")),
        ({"TORCHELASTIC_RUN_ID": "t"}, ("t", "torchelastic")),
        ({"TORCHELASTIC_RUN_ID": "none"}, ("", "peerwatch")),
        ({"SLURM_JOB_ID": " "}, ("", "peerwatch")),
        ({"PEERWATCH_JOB_ID": "x" * 500}, ("x" * 128, "peerwatch")),
    ],
)
def test_most_explicit_variable_names_the_job(environment, expected):
    assert expected == job_of(environment)


def test_boot_time_is_read(tree):
    assert BOOT_TIME == Procfs(tree.root).boot_time()
