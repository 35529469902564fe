"""What XIDs mean: classes, what a reset must follow, bounds for those that nobody knows."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware_cases import FIXTURES, case_node, collected, node, only, scenario_of
from peerwatch_exporter.catalog.xid_codes import XIDS
from peerwatch_exporter.collectors.xid import (
    MAX_PAIRS,
    MAX_UNKNOWN_CODES,
    OTHER_BUS,
    OTHER_CODE,
    XidLog,
)
from peerwatch_exporter.settings.config import ExporterConfig, XidConfig
from peerwatch_exporter.sources.gpu.facts import XidEvent
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


def configured(busy, severity):
    """Return a collector with these classes of codes."""
    return busy.collector("xid", ExporterConfig(xid=XidConfig(severity=severity)))


def test_every_published_code_is_explained_once():
    with case_node("degraded_node") as degraded:
        tell_boards(degraded)
        samples = degraded.collect("xid")
    codes = [key[0] for key in only(samples, "gpu_xid_info")]

    assert len(set(codes)) == len(codes)
    assert {key[2] for key in only(samples, "gpu_xid_errors_total")} == set(codes)


def test_info_says_what_to_do():
    with case_node("h100_node") as h100:
        tell_boards(h100)
        info = only(h100.collect("xid"), "gpu_xid_info")

    assert {1} == set(info.values())
    assert ("79", "GPU_HAS_FALLEN_OFF_THE_BUS", "hardware", XIDS[79].advice) in info
    assert ("31", "FIFO_ERROR_MMU_ERR_FLT", "application", XIDS[31].advice) in info


def test_classes_are_those_of_the_lines():
    with case_node("degraded_node") as degraded:
        tell_boards(degraded)
        errors = only(degraded.collect("xid"), "gpu_xid_class_errors_total")

    assert {
        # Fallen off the bus twice, and once the demand to reboot the node.
        ("", "0000:4c:00.0", "hardware"): 3,
        # One NVLink error that grew fatal, and a code without an entry.
        ("3", "0000:5d:00.0", "degraded"): 1,
        ("3", "0000:5d:00.0", "hardware"): 1,
        ("3", "0000:5d:00.0", "watch"): 1,
    } == {key: value for key, value in errors.items() if value}


def test_fatal_line_is_not_hidden_by_a_harmless_one_of_the_same_burst():
    log = XidLog()
    for word in ("Nonfatal", "Nonfatal", "Fatal", "Fatal", "Nonfatal"):
        log.add(f"NVRM: Xid (PCI:0000:04:00): 146, TLW_RX {word} XC0 i0 Link 03 (0x1 0x2)", 1.0)

    assert {("0000:04:00.0", "degraded"): 1, ("0000:04:00.0", "hardware"): 1} == log.severities
    assert 1 == log.occurrences["0000:04:00.0", 146].count


def test_errors_that_a_reset_must_follow_are_published_with_their_last_time(busy_node):
    write(
        busy_node,
        f"1,1,50000000,-;NVRM: Xid (PCI:{BUS[:-2]}): 119, Timeout after 6s of waiting",
        f"1,2,60000000,-;NVRM: Xid (PCI:{BUS[:-2]}): 48, pid=1, DBE",
        f"1,3,90000000,-;NVRM: Xid (PCI:{BUS[:-2]}): 146, TLW_RX Nonfatal XC0 i0 Link 03 (0x1 0x2)",
        f"1,4,91000000,-;NVRM: Xid (PCI:{BUS[:-2]}): 146, TLW_RX Fatal XC0 i0 Link 03 (0x1 0x2)",
        f"1,5,99000000,-;NVRM: Xid (PCI:{BUS[:-2]}): 48, pid=1, DBE",
        f"1,6,99500000,-;NVRM: Xid (PCI:{BUS[:-2]}): 13, pid=1, Graphics Exception",
        f"1,7,99600000,-;NVRM: Xid (PCI:{BUS[:-2]}): 63, pid=1, Row Remapper: New row marked",
    )
    found = only(busy_node.collect("xid"), "gpu_xid_class_last_timestamp_seconds")

    assert {
        ("0", BUS, "48", "hardware"): BOOT + 99,
        ("0", BUS, "119", "hardware"): BOOT + 50,
        ("0", BUS, "146", "degraded"): BOOT + 90,
        ("0", BUS, "146", "hardware"): BOOT + 91,
    } == found


def test_exporter_that_starts_again_knows_the_errors_of_the_log(busy_node):
    write(busy_node, f"1,1,50000000,-;NVRM: Xid (PCI:{BUS[:-2]}): 119, Timeout after 6s of waiting")
    name = "gpu_xid_class_last_timestamp_seconds"
    before = only(busy_node.collect("xid"), name)

    with node(scenario_of("h100_node"), root=busy_node.sources.paths.kmsg.parent) as again:
        tell_boards(again)

        assert before == only(again.collect("xid"), name)


def test_event_of_the_driver_is_an_error_that_a_reset_must_follow():
    log = XidLog()
    log.add_event(XidEvent(BUS, 48, 1000.0))
    log.add_event(XidEvent(BUS, 48, 900.0))
    log.add_event(XidEvent(BUS, 13, 1000.0))

    assert {(BUS, 48, "hardware"): 1000.0} == log.lasting


def test_recovery_action_is_the_last_one_asked_for():
    log = XidLog()
    line = "NVRM: Xid (PCI:0000:04:00): 154, GPU recovery action changed from {} to {}"
    log.add(line.format("0x0 (None)", "0x4 (Drain and Reset)"), 1.0)
    log.add(line.format("0x4 (Drain and Reset)", "0x1 (GPU Reset Required)"), 100.0)
    log.add("NVRM: Xid (PCI:0000:04:00): 154, in other words", 200.0)

    assert {"0000:04:00.0": "gpu_reset"} == log.recovery_actions
    assert {"degraded": 1, "hardware": 1, "ignore": 1} == {
        severity: count for (_, severity), count in log.severities.items()
    }


def test_recovery_action_of_a_lost_gpu_is_published():
    with case_node("degraded_node") as degraded:
        tell_boards(degraded)
        actions = only(degraded.collect("xid"), "gpu_xid_recovery_action_info")

    assert {("", "0000:4c:00.0", "node_reboot"): 1} == actions


def test_configured_class_starts_at_zero_and_is_counted(busy_node):
    collector = configured(busy_node, {109: "hardware", 79: "watch"})
    write(busy_node, "4,1,60000000,-;NVRM: Xid (PCI:0000:19:00): 109, pid=7, name=python, Ch 8")
    samples = collected(collector)
    errors = only(samples, "gpu_xid_errors_total")

    assert 1 == errors["0", "0000:19:00.0", "109"]
    assert 0 == errors["1", "0000:3b:00.0", "109"]
    assert "79" not in {key[2] for key in errors}
    assert 1 == samples["gpu_xid_class_errors_total", "0", "0000:19:00.0", "hardware"]
    assert ("109", "CTXSW_TIMEOUT_ERROR", "hardware", XIDS[46].advice) in only(
        samples, "gpu_xid_info"
    )


def test_configured_class_wins_over_the_line():
    log = XidLog({149: "ignore"})
    log.add("NVRM: Xid (PCI:0000:04:00): 149, NETIR_LINK_DOWN Fatal XC0 i0 Link 03 (0x1)", 1.0)

    assert {("0000:04:00.0", "ignore"): 1} == log.severities


def test_flood_of_unknown_codes_ends_in_other():
    found = counts(
        *((code, f"NVRM: Xid (PCI:0000:18:00): {code}, x") for code in range(1000, 1200))
    )

    assert MAX_UNKNOWN_CODES + 1 == len(found)
    # 184 codes, one a second: a burst of "other" every 5 s.
    assert 37 == found["0000:18:00.0", OTHER_CODE]


def test_codes_of_the_table_keep_their_numbers_in_a_flood():
    unknown = ((0.0, f"NVRM: Xid (PCI:0000:18:00): {code}, x") for code in range(1000, 1200))
    known = ((0.0, f"NVRM: Xid (PCI:0000:18:00): {code}, x") for code in XIDS)
    found = counts(*unknown, *known)

    assert XIDS.keys() <= {code for _, code in found}


def test_flood_of_addresses_ends_in_other_and_keeps_the_first():
    lines = (
        (float(10 * n), f"NVRM: Xid (PCI:{n:04x}:18:00): 79, x") for n in range(MAX_PAIRS + 100)
    )
    found = counts((0.0, "NVRM: Xid (PCI:9999:18:00): 48, x"), *lines)

    assert MAX_PAIRS + 1 == len(found)
    assert 101 == found[OTHER_BUS, OTHER_CODE]
    assert 1 == found["9999:18:00.0", 48]


def test_other_is_published_and_explained(busy_node):
    write(
        busy_node,
        *(
            f"4,1,{n}000000,-;NVRM: Xid (PCI:0000:19:00): {1000 + n}, x"
            for n in range(MAX_UNKNOWN_CODES + 1)
        ),
    )
    samples = busy_node.collect("xid")

    assert 1 == samples["gpu_xid_errors_total", "0", "0000:19:00.0", "other"]
    assert ["watch", "watch"] == [
        key[2] for key in only(samples, "gpu_xid_info") if key[0] in {"1000", "other"}
    ]


@given(
    st.text()
    | st.from_regex(
        r"NVRM: Xid \((PCI:)?[0-9a-f:.]{0,14}\): [0-9]{0,8},? ?"
        r"(recovery action changed from 0x\w{0,20} \(.?\) to 0x\w{0,20}|T1 Fatal XC0)?.*"
    )
    | st.sampled_from(["NVRM: The NVIDIA GPU 0000:18:00.0", "fallen off the bus and is not resp"])
)
def test_no_text_raises(text):
    log = XidLog()
    log.add(text, 0.0)

    assert all(found.count for found in log.occurrences.values())
