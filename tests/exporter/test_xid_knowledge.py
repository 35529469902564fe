"""The tables of error codes: complete, consistent, and read from lines as real nodes log them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from each_case import each_case
from peerwatch_exporter.catalog import sxid_codes as sxid
from peerwatch_exporter.catalog import xid_codes as xid_table
from peerwatch_exporter.catalog.xid_codes import (
    CLASS_ADVICE,
    SEVERITIES,
    XIDS,
    critical_codes,
    describe,
    recovery_action,
    severity_of,
)

# Drained at once by every operator whose list is public, or told to reset by NVIDIA.
DRAIN_NOW = {46, 48, 61, 62, 64, 74, 79, 95, 119, 120, 140, 143, 158}
DOMAINS = {
    "application",
    "channel",
    "copy_engine",
    "display",
    "driver",
    "firmware",
    "inforom",
    "memory",
    "nvlink",
    "pcie",
    "power",
    "video",
}
IMMEDIATE_ACTIONS = {
    "check_mechanicals",
    "check_uvm",
    "contact_support",
    "follow_line",
    "ignore",
    "none_given",
    "reset_gpu",
    "restart_app",
    "restart_node",
    "restart_vm",
    "update_software",
    "workflow",
}
RECOVERY = "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to {}"


def test_every_code_stands_in_the_table_once():
    rows = [line.split()[0] for line in xid_table._TABLE.splitlines() if line]

    assert [str(code) for code in range(1, 177)] == rows
    assert list(range(1, 177)) == list(XIDS)


@each_case("code", XIDS)
def test_entry_uses_the_words_of_its_columns(code):
    entry = XIDS[code]

    assert entry.severity in SEVERITIES
    assert entry.domain in DOMAINS
    assert entry.immediate_action in IMMEDIATE_ACTIONS
    assert entry.mnemonic == entry.mnemonic.upper()
    # It becomes a label: one short sentence or two.
    assert entry.advice.endswith(".")
    assert len(entry.advice) <= 90


def test_names_are_distinct():
    assert len(XIDS) == len({entry.mnemonic for entry in XIDS.values()})


def test_own_advice_differs_from_the_classes():
    assert xid_table._ADVICE.keys() <= XIDS.keys()
    assert not set(xid_table._ADVICE.values()) & set(CLASS_ADVICE.values())


def test_what_is_drained_now():
    assert DRAIN_NOW == {code for code, entry in XIDS.items() if entry.severity == "hardware"}


def test_advice_fits_the_class():
    for entry in XIDS.values():
        drains_now = entry.advice.startswith("Drain now")
        assert drains_now == (entry.severity == "hardware" or entry.code in range(144, 151)), entry


def test_critical_codes_are_what_is_drained_now_and_two_memory_events():
    assert DRAIN_NOW | {63, 94} == critical_codes({})
    assert (DRAIN_NOW | {63, 94, 109, 500}) - {79} == critical_codes(
        {109: "hardware", 500: "hardware", 79: "watch", 63: "ignore"}
    )


def test_other_class_brings_the_advice_of_that_class():
    changed = describe(109, {109: "hardware"})

    assert ("CTXSW_TIMEOUT_ERROR", "hardware") == (changed.mnemonic, changed.severity)
    assert CLASS_ADVICE["hardware"] == changed.advice
    # The class it has anyway changes nothing.
    assert XIDS[109] == describe(109, {109: "watch"})


def test_unknown_code_is_watched_unless_configured():
    assert "watch" == describe(500, {}).severity
    assert "degraded" == describe(500, {500: "degraded"}).severity


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (145, "145, RLW_REMAP Nonfatal XC0 i0 Link 17 (0x00000020 0x00000080)", "degraded"),
        (145, "145, pid=1234, name=python, RLW_CTRL Fatal XC1 i0 Link -1 (0x3 0x8)", "hardware"),
        (149, "149, NETIR_LINK_DOWN Fatal   XC0 i0 Link 03 (0x26 0x2)", "hardware"),
        (150, "150, a form that nobody knows yet: Fatal", "degraded"),
        # Other codes print such words too, about something else.
        (13, "13, GRAPHICS Fatal XC0", "application"),
        (48, "48, pid='<unknown>', name=<unknown>, DBE", "hardware"),
        (154, RECOVERY.format("0x0 (None)"), "ignore"),
        (154, RECOVERY.format("0x1 (GPU Reset Required)"), "hardware"),
        (154, RECOVERY.format("0x2 (OS Reboot)"), "hardware"),
        (154, RECOVERY.format("0x3 (Drain P2P)"), "degraded"),
        (154, RECOVERY.format("0x99 (Something new)"), "watch"),
        (154, "154, a form that nobody knows yet", "ignore"),
    ],
)
def test_class_of_a_line(code, text, expected):
    assert expected == severity_of(code, text, {})
    assert "application" == severity_of(code, text, {code: "application"})


@pytest.mark.parametrize("code", range(144, 151))
def test_fatal_line_of_every_nvlink_code_is_hardware(code):
    line = f"NVRM: Xid (PCI:0000:04:00): {code}, UNIT_A {{}} XC0 i0 Link 00 (0x1 0x2)"

    assert "hardware" == severity_of(code, line.format("Fatal"), {})
    assert "degraded" == severity_of(code, line.format("Nonfatal"), {})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("0x0 (None)", "none"),
        ("0x1 (PF FLR)", "gpu_reset"),
        ("0x2 (Node Reboot Required)", "node_reboot"),
        ("0x3 (Drain P2P)", "drain_p2p"),
        ("0x4 (Drain and Reset)", "drain_and_reset"),
        ("0x5 (Recover IMEX)", "recover_imex_domain"),
        ("0x8 (Something new)", "unknown"),
        ("nothing", None),
    ],
)
def test_recovery_action_by_the_drivers_number(words, expected):
    assert expected == recovery_action(RECOVERY.format(words))


@given(st.integers(), st.text())
def test_no_line_raises(code, text):
    assert severity_of(code, text, {}) in SEVERITIES
    assert severity_of(154, f"recovery action changed from 0x0 () to 0x{text}", {}) in SEVERITIES


def test_switch_codes_by_class():
    codes = {severity: set() for severity in SEVERITIES}
    for code, entry in sxid.SXIDS.items():
        assert code == entry.code
        codes[entry.severity].add(code)

    assert 93 == len(sxid.SXIDS)
    assert {12020, 22003, 22011, *range(23001, 23018)} == codes["hardware"]
    assert {12028, 20001, 22013, 24003} <= codes["watch"]
    assert {11001, 14017, 20034, 24007} <= codes["degraded"]
    assert {10005} == codes["ignore"]


def test_switch_code_twice_is_refused():
    with pytest.raises(ValueError, match="SXID 7 stands in the table twice"):
        sxid._parse("watch | a | 5-9\nwatch | b | 7\n")


def test_unknown_switch_code_is_watched():
    assert ("unknown", "watch") == (sxid.describe(1).meaning, sxid.describe(1).severity)
