"""XIDs from the kernel log and the driver, each counted once."""

from __future__ import annotations

import contextlib
import shutil

import pytest

from hardware_cases import FIXTURES, case_node, collected, node, only, scenario_of
from peerwatch_exporter.catalog.xid_codes import SEVERITIES, critical_codes
from peerwatch_exporter.collectors.xid import (
    XidLog,
)
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.sources.gpu.facts import XidEvent
from peerwatch_exporter.sources.kernel.kmsg import Kmsg
from xid_node import BOOT, BUS, counts, tell_boards, write


@pytest.fixture
def busy_node(tmp_path):
    """Yield a node of eight GPUs whose kernel log can be written."""
    (tmp_path / "proc").mkdir()
    shutil.copy(FIXTURES / "h100_node/proc/stat", tmp_path / "proc/stat")
    (tmp_path / "kmsg").touch()
    with node(scenario_of("h100_node"), root=tmp_path) as busy:
        tell_boards(busy)
        yield busy


def test_counts_of_a_log_with_many_kinds():
    with case_node("h100_node") as h100:
        tell_boards(h100)
        errors = only(h100.collect("xid"), "gpu_xid_errors_total")

    assert {
        ("1", "0000:3b:00.0", "13"): 2,
        ("1", "0000:3b:00.0", "43"): 1,
        ("4", "0000:9b:00.0", "31"): 1,
        ("7", "0000:db:00.0", "94"): 1,
        ("6", "0000:cb:00.0", "145"): 1,
        ("0", "0000:19:00.0", "119"): 1,
        ("", "0000:06:00.0", "69"): 1,
    } == {key: value for key, value in errors.items() if value}


def test_last_time_is_unix_time_by_the_boot_time():
    with case_node("h100_node") as h100:
        tell_boards(h100)
        last = only(h100.collect("xid"), "gpu_xid_last_timestamp_seconds")

    assert BOOT + 3607.5 == last["1", "0000:3b:00.0", "13"]
    assert BOOT + 7200.25 == last["4", "0000:9b:00.0", "31"]
    assert 7 == len(last)


def test_critical_codes_of_every_gpu_start_at_zero(busy_node):
    samples = busy_node.collect("xid")
    errors = only(samples, "gpu_xid_errors_total")

    assert {str(code) for code in critical_codes({})} == {key[2] for key in errors}
    assert 8 * len(critical_codes({})) == len(errors)
    assert {0} == set(errors.values())
    assert 0 == errors["2", "0000:4c:00.0", "79"]
    assert {} == only(samples, "gpu_xid_last_timestamp_seconds")


def test_every_class_of_every_gpu_starts_at_zero(busy_node):
    errors = only(busy_node.collect("xid"), "gpu_xid_class_errors_total")

    assert 8 * len(SEVERITIES) == len(errors)
    assert {0} == set(errors.values())


def test_fallen_gpu_is_counted_once_for_its_lines_with_and_without_code():
    with case_node("degraded_node") as degraded:
        tell_boards(degraded)
        collector = degraded.collector("xid")
        samples = {key: value for key, value in collected(collector).items() if value}
        again = {key: value for key, value in collected(collector).items() if value}

    # Once by code and text within 5 s, and once a hundred seconds later by text alone.
    assert 2 == samples["gpu_xid_errors_total", "", "0000:4c:00.0", "79"]
    assert BOOT + 86500.0 == samples["gpu_xid_last_timestamp_seconds", "", "0000:4c:00.0", "79"]
    assert 1 == samples["gpu_xid_errors_total", "", "0000:4c:00.0", "154"]
    # The last line has no end yet: its "7" may become 79.
    assert not [key for key in samples if "0000:3b:00.0" in key[2:3]]
    assert samples == again


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off.",
        "NVRM: Xid (PCI:0000:18:00): 79",
        "NVRM: Xid (PCI:0000:18:00 GPU-I:05): 79, pid=7194, name=python, of a MIG instance",
        "NVRM: Xid (PCI:0000:18:00 GPU-I:05 GPU-CI:00): 79, pid=7194, name=python",
        "NVRM: Xid (0000:18:00): 79, something",
        "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.",
        "NVRM: GPU at 0000:18:00.0 has fallen off the bus.",
        "NVRM: The NVIDIA GPU 0000:18:00.0\nNVRM: (PCI ID: 10de:2330) installed in this "
        "system has\nNVRM: fallen off the bus and is not responding to commands.",
    ],
    ids=["coded", "no_comma", "mig_gpu", "mig_compute", "no_pci", "gpu", "gpu_at", "three_lines"],
)
def test_every_form_of_a_fallen_gpu_is_79(line):
    assert {("0000:18:00.0", 79): 1} == counts((0.0, line))


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:19:00 (printing 1 of 30).",
        "NVRM: GPU at PCI:0000:4c:00: GPU-00000002-51ce-4a7b-9d20-7be1f00c0002",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress",
        "NVRM: fallen off the bus and is not responding to commands.",
        "NVRM: Xid (PCI:0000:18:00): unknown",
    ],
    ids=["rate_limit", "uuid", "sxid", "which_gpu", "no_code"],
)
def test_other_lines_count_nothing(line):
    assert {} == counts((0.0, line))


def test_three_lines_of_a_fallen_gpu_may_be_three_records():
    assert {("0000:18:00.0", 79): 1} == counts(
        (1.0, "NVRM: The NVIDIA GPU 0000:18:00.0"),
        (1.0, "NVRM: (PCI ID: 10de:2330) installed in this system has"),
        (1.0, "NVRM: fallen off the bus and is not responding to commands."),
    )


def test_burst_counts_once_per_five_seconds_from_its_start():
    line = "NVRM: Xid (PCI:0000:18:00): 13, Graphics SM Warp Exception"

    assert {("0000:18:00.0", 13): 1} == counts((100.0, line), (104.9, line))
    assert {("0000:18:00.0", 13): 2} == counts((100.0, line), (105.0, line))
    # A stream that never pauses is still more than one.
    assert {("0000:18:00.0", 13): 4} == counts(*((float(second), line) for second in range(20)))


@pytest.mark.parametrize("seconds", [6, 45])
def test_retries_of_a_dead_gsp_are_one_error(seconds):
    line = (
        "NVRM: Xid (PCI:0000:19:00): 119, pid=2345, name=python3, "
        f"Timeout after {seconds}s of waiting for RPC response from GPU0 GSP! Expected function 76."
    )
    tries = [(n * (seconds + 0.2), line) for n in range(20)]
    later = tries[-1][0] + 600

    assert {("0000:19:00.0", 119): 1} == counts(*tries)
    assert {("0000:19:00.0", 119): 2} == counts(*tries, (later, line))


def test_events_of_a_dead_gsp_are_one_error():
    log = XidLog()
    for n in range(20):
        log.add_event(XidEvent("0000:19:00.0", 119, 6.2 * n))

    assert 1 == log.occurrences["0000:19:00.0", 119].count


def test_log_that_starts_again_is_no_burst():
    line = "NVRM: Xid (PCI:0000:18:00): 13, Graphics SM Warp Exception"

    assert {("0000:18:00.0", 13): 2} == counts((100.0, line), (2.0, line))


def test_burst_of_one_gpu_or_code_does_not_hide_another():
    assert {("0000:18:00.0", 13): 1, ("0000:18:00.0", 31): 1, ("0000:2a:00.0", 13): 1} == counts(
        (1.0, "NVRM: Xid (PCI:0000:18:00): 13, a"),
        (1.0, "NVRM: Xid (PCI:0000:18:00): 31, b"),
        (1.0, "NVRM: Xid (PCI:0000:2a:00): 13, c"),
    )


def test_counter_rises_between_collections(busy_node):
    collector = busy_node.collector("xid")
    assert 0 == collected(collector)["gpu_xid_errors_total", "0", "0000:19:00.0", "79"]
    write(busy_node, "4,1,60000000,-;NVRM: Xid (PCI:0000:19:00): 79, GPU has fallen off the bus.")
    samples = collected(collector)

    assert 1 == samples["gpu_xid_errors_total", "0", "0000:19:00.0", "79"]
    assert BOOT + 60.0 == samples["gpu_xid_last_timestamp_seconds", "0", "0000:19:00.0", "79"]


def test_line_without_a_time_happened_when_it_was_read(busy_node):
    write(busy_node, "NVRM: Xid (PCI:0000:19:00): 48, DBE")
    last = only(busy_node.collect("xid"), "gpu_xid_last_timestamp_seconds")

    assert {("0", "0000:19:00.0", "48"): busy_node.sources.clock()} == last


def test_messages_wait_while_the_boot_time_cannot_be_read(busy_node):
    write(busy_node, "4,1,60000000,-;NVRM: Xid (PCI:0000:19:00): 79, GPU has fallen off the bus.")
    stat = busy_node.sources.paths.procfs / "stat"
    stat.rename(stat.with_name("hidden"))
    collector = busy_node.collector("xid")
    with pytest.raises(FileNotFoundError):
        collected(collector)
    stat.with_name("hidden").rename(stat)

    assert 1 == collected(collector)["gpu_xid_errors_total", "0", "0000:19:00.0", "79"]


def test_driver_is_never_asked(busy_node):
    before = dict(busy_node.nvml.calls)
    write(busy_node, "4,1,60000000,-;NVRM: Xid (PCI:0000:19:00): 119, Timeout")

    assert 1 == busy_node.collect("xid")["gpu_xid_errors_total", "0", "0000:19:00.0", "119"]
    assert before == busy_node.nvml.calls


def test_log_is_counted_without_nvml(tmp_path):
    shutil.copytree(FIXTURES / "h100_node/proc", tmp_path / "proc")
    shutil.copy(FIXTURES / "h100_node/kmsg", tmp_path / "kmsg")
    with node(None, root=tmp_path) as no_driver:
        errors = only(no_driver.collect("xid"), "gpu_xid_errors_total")

    assert {""} == {key[0] for key in errors}
    assert 2 == errors["", "0000:3b:00.0", "13"]


@pytest.fixture
def refused(monkeypatch):
    """Let nobody read the kernel log."""

    def refuse(kmsg):
        raise PermissionError(1, "Operation not permitted", "/dev/kmsg")

    monkeypatch.setattr(Kmsg, "read", refuse)


def test_refused_log_fails_the_collector_where_there_is_no_gpu(tmp_path, refused):
    with node(None, root=tmp_path) as no_driver, pytest.raises(PermissionError):
        no_driver.collect("xid")


def events(busy, *found):
    """Let NVML report (PCI address, code, time)."""
    busy.sources.gpus.add_events([XidEvent(*event) for event in found])


def test_events_are_counted_where_the_log_is_refused(busy_node, refused):
    collector = busy_node.collector("xid")
    events(busy_node, (BUS, 48, 100.0), (BUS, 48, 106.0), (BUS, 48, 107.0))
    families = []
    with pytest.raises(PartialData) as partial:
        list(collector.collect())
    events(busy_node, (BUS, 63, 200.0))
    with contextlib.suppress(PartialData):
        for item in collector.collect():
            families.append(item)  # noqa: PERF402 - keeps what came before the exception
    found = {(f.spec.name, *labels): value for f in families for labels, value in f.rows}

    assert isinstance(partial.value.__cause__, PermissionError)
    assert 2 == found["gpu_xid_errors_total", "0", BUS, "48"]
    assert 107.0 == found["gpu_xid_last_timestamp_seconds", "0", BUS, "48"]
    assert 1 == found["gpu_xid_errors_total", "0", BUS, "63"]
    assert 0 == found["gpu_xid_errors_total", "1", "0000:3b:00.0", "79"]
    assert {("kmsg",): 0, ("nvml",): 4} == {
        key[1:]: value for key, value in found.items() if key[0] == "exporter_xid_events_total"
    }


@pytest.mark.parametrize("first", ["log", "event"])
def test_what_both_report_counts_once_whoever_is_first(busy_node, first):
    collector = busy_node.collector("xid")
    reports = {
        "log": lambda: write(busy_node, "4,1,60000000,-;NVRM: Xid (PCI:0000:19:00): 79, gone"),
        "event": lambda: events(busy_node, (BUS, 79, BOOT + 60.9)),
    }
    reports.pop(first)()
    assert 1 == collected(collector)["gpu_xid_errors_total", "0", BUS, "79"]
    reports.popitem()[1]()
    samples = collected(collector)

    assert 1 == samples["gpu_xid_errors_total", "0", BUS, "79"]
    assert 1 == samples["gpu_xid_class_errors_total", "0", BUS, "hardware"]
    assert {("kmsg",): 1, ("nvml",): 1} == only(samples, "exporter_xid_events_total")


def test_two_errors_that_both_report_are_two(busy_node):
    collector = busy_node.collector("xid")
    write(busy_node, "4,1,60000000,-;NVRM: Xid (PCI:0000:19:00): 79, gone")
    write(busy_node, "4,2,67000000,-;NVRM: Xid (PCI:0000:19:00): 79, gone")
    assert 2 == collected(collector)["gpu_xid_errors_total", "0", BUS, "79"]
    events(busy_node, (BUS, 79, BOOT + 60.9), (BUS, 79, BOOT + 67.9))

    assert 2 == collected(collector)["gpu_xid_errors_total", "0", BUS, "79"]


def test_event_of_another_gpu_or_code_is_another_error(busy_node):
    write(busy_node, "4,1,60000000,-;NVRM: Xid (PCI:0000:19:00): 79, gone")
    events(busy_node, (BUS, 48, BOOT + 60), ("0000:3b:00.0", 79, BOOT + 60))
    errors = only(busy_node.collect("xid"), "gpu_xid_errors_total")

    assert [1, 1, 1] == [
        errors[key] for key in (("0", BUS, "79"), ("0", BUS, "48"), ("1", "0000:3b:00.0", "79"))
    ]


def test_events_wait_while_the_log_fails(busy_node):
    collector = busy_node.collector("xid")
    write(busy_node, "4,1,60000000,-;NVRM: Xid (PCI:0000:19:00): 79, gone")
    events(busy_node, (BUS, 48, 100.0))
    stat = busy_node.sources.paths.procfs / "stat"
    stat.rename(stat.with_name("hidden"))
    with pytest.raises(FileNotFoundError):
        collected(collector)
    stat.with_name("hidden").rename(stat)

    assert 1 == collected(collector)["gpu_xid_errors_total", "0", BUS, "48"]


def test_node_without_kernel_log_counts_events(tmp_path):
    with node(scenario_of("h100_node"), root=tmp_path) as container:
        tell_boards(container)
        events(container, (BUS, 48, 100.0))

        assert 1 == container.collect("xid")["gpu_xid_errors_total", "0", BUS, "48"]


def test_node_without_kernel_log_has_no_data():
    with case_node("cpu_only") as cpu_only, pytest.raises(NoData):
        cpu_only.collect("xid")
