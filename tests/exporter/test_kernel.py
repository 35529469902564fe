"""The kernel collector: one real-looking line for each pattern, and what must not count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from each_case import each_case
from hardware_cases import case_node, collected
from peerwatch_exporter.collectors.kernel import (
    CLASSES,
    SIGNATURES,
    KernelCollector,
    KernelEvents,
    classify,
)
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.settings.config import ExporterConfig

PCI = "0000:3a:00.0"
MLX5 = f"mlx5_core {PCI}"
EVENTS = [
    (
        "mlx5",
        PCI,
        f"{MLX5}: mlx5_pcie_event:301:(pid 2167): Detected insufficient power on the PCIe "
        "slot (27W).",
    ),
    ("mlx5", PCI, f"{MLX5}: poll_health:801:(pid 0): device's health compromised - reached miss"),
    ("mlx5", PCI, f"{MLX5}: print_health_info:423:(pid 0): Health issue observed, firmware"),
    ("mlx5", PCI, f"{MLX5}: poll_health:739:(pid 0): Fatal error 1 detected"),
    ("mlx5", PCI, f"{MLX5}: print_health_info:399:(pid 0): synd 0x1: firmware internal error"),
    ("mlx5", PCI, f"{MLX5}: temp_warn:164:(pid 0): High temperature on sensors with bit set 0 1"),
    (
        "mlx5",
        PCI,
        f"{MLX5}: mlx5_cmd_out_err:835:(pid 9): ACCESS_REG(0x805) op_mod(0x1) failed, status bad "
        "parameter(0x3), syndrome (0x15c356), err(-22)",
    ),
    (
        "mlx5",
        PCI,
        f"{MLX5}: wait_func:1176:(pid 1): ACCESS_REG(0x805) timeout. Will cause a leak of a "
        "command resource",
    ),
    ("mlx5", PCI, f"{MLX5}: Port module event[error]: module 0, Cable error, Bus stuck"),
    ("mlx5", PCI, f"{MLX5}: Port module event: module 1, Cable unplugged"),
    ("mlx5", PCI, f"{MLX5} eth3: TX timeout on queue: 4, SQ: 0x1a, CQ: 0x2b"),
    ("mlx5", PCI, f"{MLX5} ib3: Link down"),
    ("mlx5", "eth3", "NETDEV WATCHDOG: eth3 (mlx5_core): transmit queue 4 timed out 5632 ms"),
    ("mlx5", PCI, f"{MLX5} eth3: NETDEV WATCHDOG: CPU: 7: transmit queue 4 timed out 5632 ms"),
    ("mlx5", "mlx5_3", "infiniband mlx5_3: mlx5_poll_one:524:(pid 7): Responder error cqe on cqn"),
    ("mce", "", "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 7: 9c00000000010090"),
    ("mce", "", "mce: [Hardware Error]: Machine check events logged"),
    ("mce", "", "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0"),
    ("hung_task", "python:48211", "INFO: task python:48211 blocked for more than 120 seconds."),
    ("hung_task", "k w:1:7", "INFO: task k w:1:7 blocked in I/O wait for more than 120 seconds."),
    ("hung_task", "CPU#3", "watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [python:48211]"),
    ("hung_task", "cpu 3", "NMI watchdog: Watchdog detected hard LOCKUP on cpu 3"),
    ("oom", "811", "Out of memory: Killed process 811 (python) total-vm:912345kB"),
    ("oom", "812", "Memory cgroup out of memory: Killed process 812 (python) total-vm:912345kB"),
    ("oom", "813", "Out of memory: Kill process 813 (python) score 900 or sacrifice child"),
    (
        "nvlink",
        "",
        "NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Getting peer2's postRxDetLinkMask failed!",
    ),
    (
        "nvlink",
        "",
        "NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!",
    ),
    (
        "apei",
        "4",
        "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4",
    ),
    ("apei", "", "BERT: Error records from previous boot:"),
]
HARMLESS = [
    f"{MLX5} eth3: Link up",
    f"{MLX5}: Port module event: module 0, Cable plugged",
    f"{MLX5}: 126.016 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x8 link",
    f"{MLX5}: firmware version: 28.39.2048",
    f"{MLX5}: mlx5_cmd_out_err:838:(pid 9): ACCESS_REG(0x805) op_mod(0x1) failed, status bad "
    "operation(0x2), syndrome (0x9a6171), err(-22)",
    f"{MLX5}: mlx5_cmd_out_err:838:(pid 9): ACCESS_REG(0x805) op_mod(0x1) failed, status bad "
    "resource(0x5), syndrome (0x305684), err(-22)",
    "NETDEV WATCHDOG: eno1 (igb): transmit queue 1 timed out",
    "igb 0000:01:00.0 eno1: NETDEV WATCHDOG: CPU: 7: transmit queue 1 timed out 5632 ms",
    "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
    "EDAC MC: Ver: 3.0.0",
    "mce: CPU0: Thermal monitoring enabled (TM1)",
    "oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid=48300,uid=1000",
    "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0",
    "{1}[Hardware Error]: event severity: recoverable",
    "NVRM: knvlinkCoreShutdownDeviceLinks_IMPL: Need to shutdown all links unilaterally",
    "INFO: rcu_sched detected stalls on CPUs/tasks",
    "audit: killed process 9",
]


@pytest.fixture
def degraded():
    """Yield a new collector of the degraded node."""
    with case_node("degraded_node") as node:
        yield KernelCollector(ExporterConfig(), node.sources)


@each_case("event_class, subject, line", EVENTS)
def test_line_of_each_pattern_has_its_class(event_class, subject, line):
    assert (event_class, subject) == classify(line)


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.keyword)
def test_no_pattern_is_without_a_line(signature):
    assert any(signature.pattern.search(line) and signature.keyword in line for *_, line in EVENTS)


@pytest.mark.parametrize("line", HARMLESS)
def test_line_that_only_informs_counts_nothing(line):
    assert classify(line) is None


def test_every_class_starts_at_zero():
    assert dict.fromkeys(["mlx5", "mce", "hung_task", "oom", "nvlink", "apei"], 0) == (
        KernelEvents().counts
    )


def test_events_of_a_failing_node(degraded):
    name = "host_kernel_events_total"

    # The cable error and the link that went down lie more than 5 s apart.
    assert {
        (name, "mlx5"): 2,
        (name, "mce"): 1,
        (name, "hung_task"): 1,
        (name, "oom"): 1,
        (name, "nvlink"): 1,
        (name, "apei"): 1,
    } == collected(degraded)


def test_collecting_again_counts_nothing_twice(degraded):
    assert collected(degraded) == collected(degraded)


def test_node_without_kernel_log_has_no_data():
    with case_node("cpu_only") as cpu_only, pytest.raises(NoData):
        collected(KernelCollector(ExporterConfig(), cpu_only.sources))


def test_burst_counts_once_for_each_thing_it_happened_to():
    events = KernelEvents()
    for seconds, pci in [(1.0, 1), (2.0, 1), (2.0, 2), (5.9, 1), (6.0, 1)]:
        events.add(f"mlx5_core 0000:0{pci}:00.0: synd 0x1: firmware internal error", seconds)
    for pid in range(3):
        events.add(f"Out of memory: Killed process {pid} (python)", 1.0)

    assert 3 == events.counts["mlx5"]
    assert 3 == events.counts["oom"]


def test_record_of_several_lines_is_read_line_by_line():
    events = KernelEvents()
    events.add("harmless\nBERT: Error records from previous boot:\nand more", 1.0)

    assert 1 == events.counts["apei"]


@given(
    st.text()
    | st.lists(
        st.sampled_from(
            [signature.keyword for signature in SIGNATURES] + [line for *_, line in EVENTS]
        )
        | st.text(max_size=5)
    ).map(" ".join)
)
def test_no_text_raises_or_makes_a_class(text):
    events = KernelEvents()
    events.add(text, 0.0)

    assert CLASSES == tuple(events.counts)
