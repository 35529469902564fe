"""The sxid collector: what counts as an error of a switch, and what bounds its series."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware_cases import case_node, collected, only
from peerwatch_exporter.catalog.sxid_codes import SXIDS
from peerwatch_exporter.collectors.sxid import (
    MAX_SWITCHES,
    MAX_UNKNOWN_CODES,
    OTHER_CODE,
    OTHER_SWITCH,
    SxidLog,
)
from peerwatch_exporter.errors import NoData

BOOT = 1767225600


def counts(*messages):
    """Return the counts after (seconds, text) messages."""
    log = SxidLog()
    for seconds, text in messages:
        log.add(text, seconds)
    return log.counts


def test_fatal_error_of_a_switch_is_counted_and_explained():
    with case_node("degraded_node") as degraded:
        samples = degraded.collect("sxid")
    what = SXIDS[20034]

    assert {
        ("nvswitch_sxid_errors_total", "2", "20034", "fatal"): 1,
        ("nvswitch_sxid_last_timestamp_seconds", "2", "20034", "fatal"): BOOT + 86520.0,
        ("nvswitch_sxid_info", "20034", what.meaning, "degraded", what.advice): 1,
    } == samples


def test_error_that_is_not_fatal():
    with case_node("h100_node") as h100:
        errors = only(h100.collect("sxid"), "nvswitch_sxid_errors_total")

    assert {("0", "12028", "nonfatal"): 1} == errors


def test_collecting_again_counts_nothing_twice():
    with case_node("degraded_node") as degraded:
        collector = degraded.collector("sxid")

        assert collected(collector) == collected(collector)


def test_node_without_kernel_log_has_no_data():
    with case_node("cpu_only") as cpu_only, pytest.raises(NoData):
        cpu_only.collect("sxid")


@pytest.mark.parametrize(
    "line",
    [
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Data {0x00000000, 0x10000001}",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Severity 5 Engine instance 30",
        "nvidia-nvswitch0: open (major=505)",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): unknown, Fatal",
        "NVRM: Xid (PCI:0000:18:00): 79, Fatal",
    ],
    ids=["data", "engine", "open", "no_code", "xid"],
)
def test_other_lines_count_nothing(line):
    assert {} == counts((0.0, line))


@pytest.mark.parametrize(
    ("rest", "code", "severity"),
    [
        ("26006, SOE HALTED", 26006, "unknown"),
        ("26007, SOE EXTERR", 26007, "unknown"),
        ("26008, SOE Watchdog error", 26008, "unknown"),
        ("10003, unhandled interrupt", 10003, "unknown"),
        ("20009, Non-fatal, Li", 20009, "nonfatal"),
        ("24007, Fatal", 24007, "fatal"),
        ("24007, FATAL, Link 28 sourcetrack timeout", 24007, "fatal"),
    ],
)
def test_line_without_severity_is_counted_too(rest, code, severity):
    line = f"nvidia-nvswitch3: SXid (PCI:0004:00:00.0): {rest}"
    assert {("3", code, severity): 1} == counts((0.0, line))


def test_lines_that_continue_an_error_of_the_controller_are_one_error_with_it():
    line = "nvidia-nvswitch0: SXid (PCI:0004:00:00.0): 26006, SOE {}"
    assert {("0", 26006, "unknown"): 1} == counts(
        (0.0, line.format("HALTED")),
        (0.1, line.format("HALT data[0] = 0x               0")),
        (0.2, line.format("HALT data[1] = 0x               1")),
    )


def test_burst_counts_once_for_each_switch_code_and_severity():
    line = "nvidia-nvswitch{}: SXid (PCI:0000:c1:00.0): {}, {}, Link 30"

    assert {
        ("1", 20034, "fatal"): 2,
        ("2", 20034, "fatal"): 1,
        ("1", 20034, "nonfatal"): 1,
        ("1", 11012, "fatal"): 1,
    } == counts(
        (1.0, line.format(1, 20034, "Fatal")),
        (1.0, line.format(2, 20034, "Fatal")),
        (1.0, line.format(1, 20034, "Non-fatal")),
        (2.0, line.format(1, 11012, "Fatal")),
        (5.9, line.format(1, 20034, "Fatal")),
        (6.0, line.format(1, 20034, "Fatal")),
    )


def test_flood_of_switches_and_codes_ends_in_other():
    line = "nvidia-nvswitch{}: SXid (PCI:0000:c1:00.0): {}, Fatal, x"
    switches = counts(*((0.0, line.format(n, 20034)) for n in range(MAX_SWITCHES + 9)))
    codes = counts(*((0.0, line.format(0, n)) for n in range(MAX_UNKNOWN_CODES + 9)))

    assert MAX_SWITCHES + 1 == len(switches)
    assert 1 == switches[OTHER_SWITCH, 20034, "fatal"]
    assert MAX_UNKNOWN_CODES + 1 == len(codes)
    assert 1 == codes["0", OTHER_CODE, "fatal"]


@given(
    st.text()
    | st.from_regex(r"nvidia-nvswitch[0-9]{0,9}: SXid \(.*\): [0-9]{0,9}, (Fatal|Non-fatal).*")
)
def test_no_text_raises(text):
    assert all(counts((0.0, text)).values())
