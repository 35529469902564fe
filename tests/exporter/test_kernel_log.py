"""What the collectors of the kernel log share: Unix times, bursts, and limits."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware_cases import NOW, FakeClock, node
from peerwatch_exporter.collectors.kernel import KernelCollector
from peerwatch_exporter.collectors.sxid import SxidCollector
from peerwatch_exporter.collectors.xid import XidCollector
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths
from peerwatch_exporter.sources.kernel.log import Admission, Bursts, KernelLog, lines_of

STAT = "cpu 1 2 3 4 5 6 7 8 9 10\nbtime 1000\nctxt 5\n"
FRAGMENTS = [
    b"6,1,2500000,-;",
    b"[    5.678901] ",
    b"NVRM: Xid (PCI:0000:18:00): ",
    b"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): ",
    b"154, GPU recovery action changed from 0x0 (None) to 0x",
    b"149, NETIR Fatal XC0 i0 Link 03 (0x1)",
    b"20034, Fatal",
    b"NVRM: The NVIDIA GPU 0000:18:00.0",
    b"NVRM: fallen off the bus and is not responding",
    b"mlx5_core 0000:3a:00.0: Fatal error ",
    b"99999999999999999999999",
    b"\\x0a\\xff",
    b"\n",
]


@pytest.fixture
def sources(tmp_path):
    """Return the sources of a node that booted at 1000."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(STAT)
    (tmp_path / "kmsg").write_text("6,1,2500000,-;wanted one\n6,2,3000000,-;other\nwanted two\n")
    paths = Paths(procfs=tmp_path / "proc", sysfs=tmp_path / "sys", kmsg=tmp_path / "kmsg")
    return Sources(paths, clock=FakeClock(), monotonic=FakeClock())


def test_wanted_messages_with_their_unix_times(sources):
    log = KernelLog(sources, lambda text: "wanted" in text)

    assert [("wanted one", 1002.5), ("wanted two", NOW)] == log.read()
    assert [] == log.read()


def test_messages_wait_while_the_boot_time_cannot_be_read(sources):
    log = KernelLog(sources, lambda text: "one" in text)
    stat = sources.paths.procfs / "stat"
    stat.rename(stat.with_name("hidden"))
    with pytest.raises(FileNotFoundError):
        log.read()
    stat.with_name("hidden").rename(stat)

    assert [("wanted one", 1002.5)] == log.read()


@given(st.lists(st.sampled_from(FRAGMENTS) | st.binary(max_size=8)).map(b"".join))
def test_no_log_raises_out_of_a_collector(content):
    with tempfile.TemporaryDirectory() as directory, node(None, root=Path(directory)) as fuzzed:
        fuzzed.sources.paths.procfs.mkdir()
        (fuzzed.sources.paths.procfs / "stat").write_text(STAT)
        fuzzed.sources.paths.kmsg.write_bytes(content + b"\n")
        for collector in (XidCollector, SxidCollector, KernelCollector):
            for family in collector(ExporterConfig(), fuzzed.sources).collect():
                assert len(family.samples) <= 10


def test_lines_are_cut_at_the_kernels_limit():
    assert ["a" * 1024, "b"] == list(lines_of("a" * 5000 + "\nb"))


@given(st.lists(st.floats(0, 100, allow_nan=False)).map(sorted))
def test_bursts_begin_at_least_five_seconds_apart(times):
    bursts = Bursts()
    begun = [time for time in times if bursts.begins("key", time)]

    assert begun[:1] == times[:1]
    assert all(5 <= later - earlier for earlier, later in itertools.pairwise(begun))


def test_bursts_forget_the_oldest_of_too_many():
    bursts = Bursts()
    assert all(bursts.begins(key, 0.0) for key in range(2000))

    assert not bursts.begins(1999, 1.0)
    assert bursts.begins(0, 1.0)


def test_admission_keeps_the_first_ones():
    admission = Admission(2)

    assert [True, True, False, True] == [admission.admits(key) for key in "abca"]
