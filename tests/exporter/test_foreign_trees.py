"""Trees laid out as others' fixtures and a real node's, read by us and by node_exporter."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import urllib.request
from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fake_ethtool import FakeEthtool
from foreign_tree import TREES, unpack
from hardware_cases import FakeClock, only
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.gpu.identity import GpuIdentity
from peerwatch_exporter.sources.host.access import Paths
from procfs_tree import ProcTree

HOST = ("cpu", "disk", "edac", "memory", "network", "pressure", "tcp")
NICS = ("nic", "nic_errors")
GPU_BUSES = ("19", "3b", "4c", "5d", "9b", "bb", "cb", "db")
DISKS = " 259 0 nvme0n1 1000 0 200000 30 400 0 50000 60 0 70 80\n"

# What node_exporter calls a value, and what we do, with labels after device and port.
COUNTERS = {
    "port_data_received_bytes_total": ("nic_receive_bytes_total",),
    "port_data_transmitted_bytes_total": ("nic_transmit_bytes_total",),
    "port_packets_received_total": ("nic_receive_packets_total",),
    "port_packets_transmitted_total": ("nic_transmit_packets_total",),
    "port_transmit_wait_total": ("nic_transmit_wait_ticks_total",),
    "link_downed_total": ("nic_link_downed_total",),
    "link_error_recovery_total": ("nic_link_recoveries_total",),
    "state_id": ("nic_port_state",),
    "physical_state_id": ("nic_port_physical_state",),
    "rate_bytes_per_second": ("nic_port_rate_bytes_per_second",),
    "symbol_error_total": ("nic_port_errors_total", "symbol_error"),
    "vl15_dropped_total": ("nic_port_errors_total", "VL15_dropped"),
    "port_errors_received_total": ("nic_port_errors_total", "port_rcv_errors"),
    "port_discards_transmitted_total": ("nic_port_errors_total", "port_xmit_discards"),
    "port_constraint_errors_received_total": (
        "nic_port_errors_total",
        "port_rcv_constraint_errors",
    ),
    "port_constraint_errors_transmitted_total": (
        "nic_port_errors_total",
        "port_xmit_constraint_errors",
    ),
    "port_receive_remote_physical_errors_total": (
        "nic_port_errors_total",
        "port_rcv_remote_physical_errors",
    ),
    "port_receive_switch_relay_errors_total": (
        "nic_port_errors_total",
        "port_rcv_switch_relay_errors",
    ),
    "local_link_integrity_errors_total": ("nic_port_errors_total", "local_link_integrity_errors"),
    "excessive_buffer_overrun_errors_total": (
        "nic_port_errors_total",
        "excessive_buffer_overrun_errors",
    ),
}
SINGLE = {
    "node_netstat_Tcp_RetransSegs": "host_tcp_retransmitted_segments_total",
    "node_netstat_Tcp_OutSegs": "host_tcp_sent_segments_total",
    "node_netstat_TcpExt_TCPTimeouts": "host_tcp_timeouts_total",
    "node_load1": "host_load1",
    "node_memory_MemTotal_bytes": "host_memory_total_bytes",
    "node_memory_MemAvailable_bytes": "host_memory_available_bytes",
    "node_boot_time_seconds": "host_boot_time_seconds",
    "node_context_switches_total": "host_context_switches_total",
    "node_procs_blocked": "host_blocked_tasks",
}
PRESSURE = {
    "node_pressure_cpu_waiting_seconds_total": ("cpu", "some"),
    "node_pressure_io_waiting_seconds_total": ("io", "some"),
    "node_pressure_io_stalled_seconds_total": ("io", "full"),
    "node_pressure_memory_waiting_seconds_total": ("memory", "some"),
    "node_pressure_memory_stalled_seconds_total": ("memory", "full"),
}
DISK = {
    "node_disk_read_bytes_total": "host_disk_read_bytes_total",
    "node_disk_written_bytes_total": "host_disk_written_bytes_total",
    "node_disk_io_time_seconds_total": "host_disk_io_seconds_total",
}


def ours(root, names):
    """Return what these collectors publish of the tree, by (metric, label values)."""
    paths = Paths(procfs=root / "proc", sysfs=root / "sys", kmsg=root / "kmsg")
    clock = FakeClock()
    sources = Sources(paths, clock=clock, monotonic=clock, ethtool=FakeEthtool())
    sources.gpus.update_boards(
        [
            GpuIdentity(index, f"GPU-{index}", pci_bus_id=f"00000000:{bus.upper()}:00.0")
            for index, bus in enumerate(GPU_BUSES)
        ]
    )
    samples = {}
    registered = registrations()
    for name in names:
        collector = registered[name].factory(ExporterConfig(), sources)
        with contextlib.suppress(NoData, PartialData):
            for family in collector.collect():
                for labels, value in family.rows:
                    assert (family.spec.name, *labels) not in samples
                    samples[family.spec.name, *labels] = value
    return samples


@contextlib.contextmanager
def node_exporter(root, names):
    """Yield the samples of a real node_exporter, by (metric, labels)."""
    command = [
        "prometheus-node-exporter",
        "--web.listen-address=127.0.0.1:0",
        f"--path.sysfs={root / 'sys'}",
        f"--path.procfs={root / 'proc'}",
        "--collector.disable-defaults",
        *(f"--collector.{name}" for name in names),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        found = (re.search(r"address=(127\.0\.0\.1:\d+)", line) for line in process.stderr)
        address = next(match[1] for match in found if match)
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=300) as answer:
            exposition = answer.read().decode()
        yield {
            (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(exposition)
            for sample in family.samples
        }
    finally:
        process.terminate()
        process.communicate()


@pytest.fixture(params=["nic_makers", "hgx_h100"])
def root(request, tmp_path):
    unpack(TREES / f"{request.param}.sys.ttar", tmp_path / "sys")
    ProcTree(tmp_path / "proc").machine(disks=DISKS, pressure=True)
    return tmp_path


@pytest.fixture
def makers(tmp_path):
    unpack(TREES / "nic_makers.sys.ttar", tmp_path / "sys")
    return tmp_path


@pytest.fixture
def hgx(tmp_path):
    unpack(TREES / "hgx_h100.sys.ttar", tmp_path / "sys")
    return tmp_path


def test_every_counter_is_the_file_s_number(root):
    samples = ours(root, NICS)
    checked = 0
    for file in (root / "sys/class/infiniband").glob("*/ports/*/counters/*"):
        text = file.read_text().strip()
        device, port = file.parts[-5], file.parts[-3]
        name, factor = {
            "port_rcv_data": (("nic_receive_bytes_total",), 4),
            "port_xmit_data": (("nic_transmit_bytes_total",), 4),
            "port_rcv_packets": (("nic_receive_packets_total",), 1),
            "port_xmit_packets": (("nic_transmit_packets_total",), 1),
            "port_xmit_wait": (("nic_transmit_wait_ticks_total",), 1),
            "link_downed": (("nic_link_downed_total",), 1),
            "link_error_recovery": (("nic_link_recoveries_total",), 1),
        }.get(file.name, (("nic_port_errors_total", file.name), 1))
        key = (name[0], device, port, *name[1:])
        if text.isdigit() and "cast" not in file.name:
            assert int(text) * factor == samples[key], file
            checked += 1
        else:
            assert key not in samples
    assert checked >= 4 * 17


@pytest.mark.skipif(
    shutil.which("prometheus-node-exporter") is None, reason="node_exporter is not on PATH"
)
def test_node_exporter_reads_the_same(root):
    # It gives up on all devices when one has no board, no counters/ or an empty port.
    for device in ("mlx4_1", "rdmap0s6", "rxe0"):
        shutil.rmtree(root / "sys/class/infiniband" / device, ignore_errors=True)
    samples = ours(root, HOST + NICS)
    wanted = ("cpu", "diskstats", "edac", "infiniband", "loadavg", "meminfo", "netstat")
    with node_exporter(root, (*wanted, "pressure", "stat")) as theirs:
        expected = theirs
    compared = Counter()
    for (name, *labels), value in expected.items():
        infiniband = name.removeprefix("node_infiniband_")
        if infiniband in COUNTERS:
            metric, *more = COUNTERS[infiniband]
            key = (metric, *labels, *more)
        elif name in SINGLE:
            key = (SINGLE[name],)
        elif name in PRESSURE:
            key = ("host_pressure_seconds_total", *PRESSURE[name])
        elif name in DISK:
            key = (DISK[name], *labels)
        elif name in {"node_edac_correctable_errors_total", "node_edac_uncorrectable_errors_total"}:
            severity = "uncorrected" if "_un" in name else "corrected"
            key = ("host_edac_errors_total", f"mc{labels[0]}", severity)
        else:
            continue
        assert pytest.approx(value, rel=1e-12) == samples[key], name
        compared[name.split("_")[1]] += 1
    busy = sum(value for key, value in expected.items() if key[0] == "node_cpu_seconds_total")
    assert pytest.approx(busy) == sum(only(samples, "host_cpu_seconds_total").values())
    assert compared["infiniband"] >= 80
    assert compared.keys() >= {"netstat", "load1", "memory", "disk", "pressure", "boot", "procs"}


def test_devices_of_every_maker_have_what_they_count(makers):
    samples = ours(makers, NICS)
    received = only(samples, "nic_receive_bytes_total")
    base = makers / "sys/class/infiniband"

    assert {"hfi1_0", "mlx4_0", "mlx4_1", "mlx5_0", "rdmap0s6"} == {key[0] for key in received}
    # 64-bit counters of an old driver in words, EFA's in bytes.
    words = int((base / "mlx4_1/ports/1/counters_ext/port_rcv_data_64").read_text())
    assert 4 * words == received["mlx4_1", "1"]
    assert (
        int((base / "rdmap0s6/ports/1/hw_counters/rx_bytes").read_text())
        == (received["rdmap0s6", "1"])
    )
    # iWARP without counters still shows its state, and a port without any file costs nothing.
    assert 4 == samples["nic_port_state", "i40iw0", "1"]
    assert ("rxe0", "1", "", "", "", "", "", "") in only(samples, "nic_port_info")
    assert 1.25e9 == samples["nic_port_rate_bytes_per_second", "mlx4_0", "2"]


def test_efa_errors_are_published_by_name(makers):
    errors = only(ours(makers, NICS), "nic_rdma_errors_total")

    assert {
        "rx_drops",
        "rdma_read_wr_err",
        "rdma_write_wr_err",
        "retrans_pkts",
        "retrans_timeout_events",
        "unresponsive_remote_events",
        "impaired_remote_conn_events",
    } == {kind for device, _, kind in errors if device == "rdmap0s6"}


def test_memory_controllers_are_counted_by_severity(makers):
    assert {
        ("mc0", "corrected"): 1,
        ("mc0", "uncorrected"): 0,
        ("mc1", "corrected"): 0,
        ("mc1", "uncorrected"): 3,
    } == only(ours(makers, ["edac"]), "host_edac_errors_total")


def test_hgx_ports_are_paired_with_the_gpu_behind_the_same_switch(hgx):
    samples = ours(hgx, ["nic"])
    pairs = {key[0]: (key[4], key[7]) for key in only(samples, "nic_port_info")}

    assert {f"mlx5_{index}": str(index) for index in range(8)} == {
        device: gpu for device, (_, gpu) in pairs.items() if device != "mlx5_bond_0"
    }
    assert ("0000:18:00.0", "0") == pairs["mlx5_0"]
    # The storage network hangs from no such switch: only its NUMA node is near.
    assert ("0000:27:00.0", "") == pairs["mlx5_bond_0"]
    near = [key for key in only(samples, "nic_gpu_info") if key[0] == "mlx5_bond_0"]
    assert [("mlx5_bond_0", "1", str(index), "numa") for index in range(4)] == near


def test_hgx_functions_and_bridges_are_all_there(hgx):
    info = only(ours(hgx, ["pcie"]), "pcie_device_info")
    parents = {key[0]: key[2] for key in info}

    assert Counter(gpu=8, nic=10, nvswitch=4, root_port=13, bridge=24) == Counter(
        key[1] for key in info
    )
    way = ["0000:cb:00.0"]
    while parents[way[-1]]:
        way.append(parents[way[-1]])
    assert ["0000:cb:00.0", "0000:c9:01.0", "0000:c8:00.0", "0000:c7:01.0"] == way
    assert ("0000:19:00.0", "gpu", "0000:17:01.0", "0x10de", "0x2330", "0") in info


def test_hgx_narrow_link_and_its_errors_show(hgx):
    samples = ours(hgx, ["pcie"])
    width = only(samples, "pcie_link_width_lanes")
    narrow = {
        key[0]
        for key, value in only(samples, "pcie_link_width_lanes_max").items()
        if width[key] < value
    }
    errors = {key: value for key, value in only(samples, "pcie_aer_errors_total").items() if value}

    # The GPU and the switch's port above it.
    assert {"0000:cb:00.0", "0000:c9:01.0"} == narrow
    assert {
        ("0000:ba:00.0", "correctable", "BadTLP"): 5,
        ("0000:cb:00.0", "correctable", "RxErr"): 12,
        ("0000:cb:00.0", "correctable", "Timeout"): 3,
        ("0000:cb:00.0", "nonfatal", "total"): 2,
    } == errors
