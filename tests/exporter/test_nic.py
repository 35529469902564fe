"""The nic and nic_errors collectors, on sysfs trees of RoCE and InfiniBand ports."""

from __future__ import annotations

import contextlib
import os
import shutil

import pytest

from fake_ethtool import FakeEthtool
from hardware_cases import case_node, collected, node, only
from open_files import open_below
from pci_tree import GPU, NIC, PciFiles
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.settings.config import ExporterConfig, NicConfig
from peerwatch_exporter.sources.gpu.identity import GpuIdentity
from peerwatch_exporter.sources.nic.rdma import MAX_PORTS


def both(node):
    """Return what the two collectors of NICs publish together."""
    return node.collect("nic") | node.collect("nic_errors")


def test_values_of_a_port_are_exact():
    with case_node("h100_node") as h100:
        samples = both(h100)

    port = ("mlx5_2", "1")
    single = {key[0]: value for key, value in samples.items() if key[1:] == port}
    assert {
        "nic_port_state": 4,
        "nic_port_physical_state": 5,
        "nic_port_rate_bytes_per_second": 50e9,
        "nic_receive_bytes_total": 4 * 250000000002,
        "nic_transmit_bytes_total": 4 * 260000000002,
        "nic_receive_packets_total": 910000002,
        "nic_transmit_packets_total": 920000002,
        "nic_link_downed_total": 2,
        "nic_link_recoveries_total": 12,
        "nic_transmit_wait_ticks_total": 4402,
        "nic_cnp_sent_total": 5102,
        "nic_cnp_handled_total": 5202,
        "nic_cnp_ignored_total": 2,
        "nic_ecn_marked_packets_total": 5302,
        "nic_out_of_sequence_packets_total": 62,
    } == single


def test_errors_are_typed_by_the_kernels_names():
    with case_node("h100_node") as h100:
        samples = h100.collect("nic_errors")

    port_errors = {
        key[2]: value
        for key, value in only(samples, "nic_port_errors_total").items()
        if key[0] == "mlx5_3" and value
    }
    assert {"symbol_error": 23, "port_rcv_errors": 33, "port_xmit_discards": 43} == port_errors
    rdma_errors = {
        key[2]: value
        for key, value in only(samples, "nic_rdma_errors_total").items()
        if key[0] == "mlx5_3" and value
    }
    assert {
        "packet_seq_err": 73,
        "local_ack_timeout_err": 83,
        "out_of_buffer": 93,
        "roce_adp_retrans": 103,
        "roce_slow_restart": 113,
    } == rdma_errors


def test_counters_that_are_no_errors_are_not_published():
    with case_node("h100_node") as h100:
        types = {key[2] for key in only(h100.collect("nic_errors"), "nic_rdma_errors_total")}

    assert types.isdisjoint({"lifespan", "rx_write_requests", "rx_read_requests"})
    assert 20 == len(types)


def test_info_joins_device_interface_and_pci_address():
    with case_node("h100_node") as h100:
        info = only(h100.collect("nic"), "nic_port_info")

    assert [
        ("mlx5_0", "1", "Ethernet", "eth2", "0000:18:00.0", "28.39.2048", "MT_0000000838", ""),
        ("mlx5_1", "1", "Ethernet", "eth3", "0000:3a:00.0", "28.39.2048", "MT_0000000838", ""),
        ("mlx5_2", "1", "Ethernet", "eth4", "0000:9a:00.0", "28.39.2048", "MT_0000000838", ""),
        ("mlx5_3", "1", "Ethernet", "eth5", "0000:ba:00.0", "28.39.2048", "MT_0000000838", ""),
    ] == list(info)


def test_port_that_is_down_still_publishes_its_counters():
    with case_node("degraded_node") as degraded:
        samples = both(degraded)

    assert 1 == samples["nic_port_state", "mlx5_1", "1"]
    assert 3 == samples["nic_port_physical_state", "mlx5_1", "1"]
    assert 5e9 == samples["nic_port_rate_bytes_per_second", "mlx5_1", "1"]
    assert 12000 == samples["nic_receive_bytes_total", "mlx5_1", "1"]
    assert 9 == samples["nic_link_downed_total", "mlx5_1", "1"]


def test_unreadable_garbled_and_missing_counters_cost_only_themselves():
    with case_node("degraded_node") as degraded:
        samples = both(degraded)

    down = {key for key in samples if key[1:3] == ("mlx5_1", "1")}
    # A directory, text, and no file at all.
    assert ("nic_cnp_sent_total", "mlx5_1", "1") not in down
    assert ("nic_port_errors_total", "mlx5_1", "1", "port_rcv_errors") not in down
    assert ("nic_cnp_ignored_total", "mlx5_1", "1") not in down
    assert 65535 == samples["nic_port_errors_total", "mlx5_1", "1", "symbol_error"]
    assert 5 == samples["nic_out_of_sequence_packets_total", "mlx5_1", "1"]
    assert 0 == samples["nic_port_errors_total", "mlx5_0", "1", "port_rcv_errors"]


def test_infiniband_port_gets_its_interface_from_the_pci_function():
    with case_node("degraded_node") as degraded:
        (first, _) = only(degraded.collect("nic"), "nic_port_info")

    assert ("mlx5_0", "1", "InfiniBand", "ib0", "0000:18:00.0") == first[:5]


def test_ports_of_one_function_are_told_apart_by_dev_port(tmp_path):
    device = tmp_path / "sys/class/infiniband/mlx4_0"
    for port in ("1", "2"):
        (device / "ports" / port).mkdir(parents=True)
        (device / "ports" / port / "link_layer").write_text("InfiniBand\n")
    function = tmp_path / "sys/bus/pci/devices/0000:81:00.0"
    for name, dev_port in (("ib0", "1"), ("ib1", "0")):
        (function / "net" / name).mkdir(parents=True)
        (function / "net" / name / "dev_port").write_text(f"{dev_port}\n")
    (device / "device").symlink_to(function)
    with node(None, root=tmp_path) as old:
        info = only(old.collect("nic"), "nic_port_info")

    assert [
        ("mlx4_0", "1", "InfiniBand", "ib1", "0000:81:00.0", "", "", ""),
        ("mlx4_0", "2", "InfiniBand", "ib0", "0000:81:00.0", "", "", ""),
    ] == list(info)


def test_node_without_rdma_device_has_no_data():
    with case_node("cpu_only") as cpu_only, pytest.raises(NoData, match="class/infiniband"):
        cpu_only.collect("nic")
    with case_node("cpu_only") as cpu_only, pytest.raises(NoData, match="class/infiniband"):
        cpu_only.collect("nic_errors")


def add_nics(tmp_path, *, gpus=2, nics=2):
    """Write so many NICs and GPUs behind one PCIe switch; return the files."""
    files = PciFiles(tmp_path / "sys")
    switch = "pci0000:15/0000:15:01.0/0000:16:00.0"
    for number in range(gpus):
        files.add(f"{switch}/0000:17:0{number}.0/0000:2{number}:00.0", GPU)
    for number in range(nics):
        bdf = files.add(f"{switch}/0000:18:0{number}.0/0000:4{number}:00.0", NIC)
        files.rdma(f"mlx5_{number}", bdf, state="4: ACTIVE", counters__port_rcv_data="5")
    return files


def boards(count):
    return [
        GpuIdentity(number, f"GPU-{number}", pci_bus_id=f"00000000:2{number}:00.0")
        for number in range(count)
    ]


def test_nics_and_gpus_on_one_switch_are_paired_in_order(tmp_path):
    add_nics(tmp_path, gpus=2, nics=3)
    with node(None, root=tmp_path) as shared:
        shared.sources.gpus.update_boards(boards(2))
        samples = shared.collect("nic")

    assert {"mlx5_0": "0", "mlx5_1": "1", "mlx5_2": "0"} == {
        key[0]: key[7] for key in only(samples, "nic_port_info")
    }
    assert {
        (f"mlx5_{nic}", "1", str(gpu), "switch") for nic in range(3) for gpu in range(2)
    } == set(only(samples, "nic_gpu_info"))


def test_gpu_is_named_as_soon_as_the_driver_says_which_it_is(tmp_path):
    add_nics(tmp_path, gpus=1, nics=1)
    with node(None, root=tmp_path) as late:
        collector = late.collector("nic")
        before = {key[7] for key in only(collected(collector), "nic_port_info")}
        late.sources.gpus.update_boards(boards(1))
        after = {key[7] for key in only(collected(collector), "nic_port_info")}

    assert ({""}, {"0"}) == (before, after)


def test_nic_that_comes_late_shows_within_ten_seconds(tmp_path):
    files = add_nics(tmp_path, nics=1)
    with node(None, root=tmp_path) as growing:
        collector = growing.collector("nic")
        collected(collector)
        files.rdma("mlx5_9", "0000:40:00.0", counters__port_rcv_data="7")
        growing.clock.now += 10

        assert 28 == collected(collector)["nic_receive_bytes_total", "mlx5_9", "1"]


def test_nic_that_vanishes_costs_only_itself_and_frees_its_descriptors(tmp_path):
    add_nics(tmp_path)
    with node(None, root=tmp_path) as shrinking:
        collector = shrinking.collector("nic")
        collected(collector)
        opened = open_below(tmp_path)
        shutil.rmtree(tmp_path / "sys/class/infiniband/mlx5_0")
        at_once = only(collected(collector), "nic_receive_bytes_total")
        shrinking.clock.now += 10
        later = only(collected(collector), "nic_port_info")

    assert {("mlx5_1", "1"): 20} == at_once
    assert ["mlx5_1"] == [key[0] for key in later]
    assert opened - 2 == open_below(tmp_path)


def test_replaced_nic_is_read_anew_at_once(tmp_path):
    files = add_nics(tmp_path, nics=1)
    with node(None, root=tmp_path) as replaced:
        collector = replaced.collector("nic")
        collected(collector)
        shutil.rmtree(tmp_path / "sys/class/infiniband/mlx5_0")
        files.rdma("mlx5_0", "0000:40:00.0", state="1: DOWN", counters__port_rcv_data="1")
        samples = collected(collector)
        replaced.clock.now += 5
        later = collected(collector)

    assert 4 == samples["nic_receive_bytes_total", "mlx5_0", "1"]
    assert 1 == later["nic_port_state", "mlx5_0", "1"]


@pytest.mark.parametrize("name", ["nic", "nic_errors", "ethtool"])
def test_excluded_devices_are_never_touched(tmp_path, monkeypatch, name):
    add_nics(tmp_path, nics=3)
    opened = []
    genuine = os.open

    def recording(path, *arguments):
        opened.append(str(path))
        return genuine(path, *arguments)

    monkeypatch.setattr(os, "open", recording)
    config = ExporterConfig(nic=NicConfig(exclude=["mlx5_0", "mlx5_[2-9]"]))
    ethtool = FakeEthtool()
    with node(None, root=tmp_path, ethtool=ethtool) as limited, contextlib.suppress(NoData):
        collected(limited.collector(name, config))

    assert [] == [path for path in opened if "mlx5_0" in path or "mlx5_2" in path]


def test_flood_of_ports_stays_bounded(tmp_path):
    files = PciFiles(tmp_path / "sys")
    for number in range(MAX_PORTS + 20):
        files.rdma(f"mlx5_{number}", "0000:40:00.0", counters__port_rcv_data="5")
    before = open_below(tmp_path)
    with node(None, root=tmp_path) as flooded:
        collector = flooded.collector("nic")
        rows = []
        with pytest.raises(PartialData, match="128 of 148"):
            rows.extend(row for family in collector.collect() for row in family.rows)
        opened = open_below(tmp_path) - before
        with pytest.raises(PartialData, match="128 of 148"):
            list(flooded.collector("nic_errors").collect())

    # Information and received bytes.
    assert 2 * MAX_PORTS == len(rows)
    assert opened <= 512


def test_interface_may_be_called_anything(tmp_path):
    add_nics(tmp_path, nics=1)
    function = (tmp_path / "sys/bus/pci/devices/0000:40:00.0").resolve()
    (function / "net" / os.fsdecode(b"e\xff\xfe")).mkdir(parents=True)
    with node(None, root=tmp_path) as odd:
        (info,) = only(odd.collect("nic"), "nic_port_info")

    assert "e??" == info[3]


def test_counter_that_cannot_be_read_is_told_of():
    with (
        case_node("degraded_node") as degraded,
        pytest.raises(PartialData, match=r"np_cnp_sent.*EISDIR") as said,
    ):
        list(degraded.collector("nic").collect())
    assert "os_error" == said.value.error_class
