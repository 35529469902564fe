"""The nic collector, on sysfs trees of RoCE and InfiniBand ports."""

from __future__ import annotations

import pytest

from hardware_cases import case_node, node, only
from peerwatch_exporter.collector import NoData


def test_values_of_a_port_are_exact():
    with case_node("h100_node") as h100:
        samples = h100.collect("nic")

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
        samples = h100.collect("nic")

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
        types = {key[2] for key in only(h100.collect("nic"), "nic_rdma_errors_total")}

    assert types.isdisjoint({"lifespan", "rx_write_requests", "rx_read_requests"})
    assert 20 == len(types)


def test_info_joins_device_interface_and_pci_address():
    with case_node("h100_node") as h100:
        info = only(h100.collect("nic"), "nic_port_info")

    assert [
        ("mlx5_0", "1", "Ethernet", "eth2", "0000:18:00.0", "28.39.2048", "MT_0000000838"),
        ("mlx5_1", "1", "Ethernet", "eth3", "0000:3a:00.0", "28.39.2048", "MT_0000000838"),
        ("mlx5_2", "1", "Ethernet", "eth4", "0000:9a:00.0", "28.39.2048", "MT_0000000838"),
        ("mlx5_3", "1", "Ethernet", "eth5", "0000:ba:00.0", "28.39.2048", "MT_0000000838"),
    ] == list(info)


def test_port_that_is_down_still_publishes_its_counters():
    with case_node("degraded_node") as degraded:
        samples = degraded.collect("nic")

    assert 1 == samples["nic_port_state", "mlx5_1", "1"]
    assert 3 == samples["nic_port_physical_state", "mlx5_1", "1"]
    assert 5e9 == samples["nic_port_rate_bytes_per_second", "mlx5_1", "1"]
    assert 12000 == samples["nic_receive_bytes_total", "mlx5_1", "1"]
    assert 9 == samples["nic_link_downed_total", "mlx5_1", "1"]


def test_unreadable_garbled_and_missing_counters_cost_only_themselves():
    with case_node("degraded_node") as degraded:
        samples = degraded.collect("nic")

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
        ("mlx4_0", "1", "InfiniBand", "ib1", "0000:81:00.0", "", ""),
        ("mlx4_0", "2", "InfiniBand", "ib0", "0000:81:00.0", "", ""),
    ] == list(info)


def test_node_without_rdma_device_has_no_data():
    with case_node("cpu_only") as cpu_only, pytest.raises(NoData, match="class/infiniband"):
        cpu_only.collect("nic")
