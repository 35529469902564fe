"""Driver statistics: the kernel's answers, the choice among them, and the ethtool collector."""

from __future__ import annotations

import ctypes
import errno
import shutil
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_ethtool import FakeEthtool
from hardware_cases import FIXTURES, FakeClock, case_node, collected, node, only
from peerwatch_exporter.collector import all_metrics
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.settings.config import EthtoolConfig, ExporterConfig
from peerwatch_exporter.sources.nic.drivers import STATISTICS
from peerwatch_exporter.sources.nic.drivers.mlx5 import DRIVER
from peerwatch_exporter.sources.nic.ethtool import (
    EthtoolIoctl,
    SelectedStatistics,
    StatisticsChangedError,
)

CATALOG = all_metrics()

PORT = ("mlx5_1", "1")
_NEW_NETWORK = 0x40000000
H100 = FIXTURES / "h100_node"


def drained(collector):
    """Return the samples that came before PartialData, and the error itself."""
    samples = {}
    try:
        for family in collector.collect():
            for sample in family.samples:
                samples[sample.name, *sample.labels.values()] = sample.value
    except PartialData as error:
        return samples, error
    return samples, None


def test_port_that_stops_its_peer_is_exact():
    with case_node("degraded_node") as degraded:
        samples = degraded.collect("ethtool")

    mine = {key: value for key, value in samples.items() if key[1:3] == PORT and value}
    assert {
        ("nic_pfc_pause_frames_total", *PORT, "receive", "3"): 12,
        ("nic_pfc_pause_frames_total", *PORT, "transmit", "3"): 918273645,
        ("nic_pfc_pause_seconds_total", *PORT, "receive", "3"): 0.00048,
        ("nic_pfc_pause_seconds_total", *PORT, "transmit", "3"): 86400.0,
        ("nic_pfc_pause_transitions_total", *PORT, "receive", "3"): 6,
        ("nic_global_pause_frames_total", *PORT, "receive"): 88123,
        ("nic_global_pause_frames_total", *PORT, "transmit"): 12,
        ("nic_global_pause_seconds_total", *PORT, "receive"): 5.25,
        ("nic_global_pause_seconds_total", *PORT, "transmit"): 0.0009,
        ("nic_global_pause_transitions_total", *PORT, "receive"): 44061,
        ("nic_pause_storm_events_total", *PORT, "warning"): 41,
        ("nic_pause_storm_events_total", *PORT, "error"): 3,
        ("nic_receive_discards_total", *PORT): 77120,
        ("nic_receive_out_of_buffer_packets_total", *PORT): 1026,
        ("nic_priority_discards_total", *PORT, "3", "port_buffer"): 77100,
        ("nic_priority_discards_total", *PORT, "3", "host_buffer"): 15,
        ("nic_priority_discards_total", *PORT, "3", "host_congestion"): 5,
        ("nic_priority_ecn_marked_total", *PORT, "3"): 640,
        ("nic_pcie_stalled_seconds_total", *PORT, "read"): 310,
        ("nic_pcie_stalled_seconds_total", *PORT, "write"): 415,
        ("nic_phy_received_bytes_total", *PORT): 110000000000000.125,
        ("nic_phy_corrected_bit_errors_total", *PORT): 9876543210,
        ("nic_phy_symbol_errors_total", *PORT): 37,
        **{("nic_phy_lane_errors_total", *PORT, str(lane)): 900 + lane for lane in range(4)},
    } == mine


def test_infiniband_port_has_what_its_driver_counts():
    with case_node("degraded_node") as degraded:
        samples = degraded.collect("ethtool")

    assert {
        ("nic_phy_received_bytes_total", "mlx5_0", "1"): 113750000000,
        ("nic_phy_corrected_bit_errors_total", "mlx5_0", "1"): 4,
        ("nic_phy_symbol_errors_total", "mlx5_0", "1"): 0,
    } == {key: value for key, value in samples.items() if key[1] == "mlx5_0"}


def test_series_per_port_are_few_of_the_many_statistics():
    with case_node("h100_node") as h100:
        samples = h100.collect("ethtool")

        names = h100.sources.ethtool.names("eth2")

    assert 230 == len(names)
    assert 60 == len([key for key in samples if key[1] == "mlx5_0"])


def test_every_metric_of_the_table_is_catalogued_with_as_many_labels():
    for series in STATISTICS.values():
        assert len(CATALOG[series.metric].labels) == 2 + len(series.labels), series


def test_host_side_and_phy_troubles_have_names_of_their_own():
    table = {
        "rx_out_of_buffer": 1,
        "outbound_pci_buffer_overflow": 2,
        "rx_pci_signal_integrity": 3,
        "tx_pci_signal_integrity": 4,
        "link_down_events_phy": 5,
        "rx_crc_errors_phy": 6,
    }
    with node(None, root=H100, ethtool=FakeEthtool({"eth3": table})) as h100:
        samples = h100.collect("ethtool")

    assert {
        ("nic_receive_out_of_buffer_packets_total", *PORT): 1,
        ("nic_pcie_buffer_overflow_packets_total", *PORT): 2,
        ("nic_pcie_signal_errors_total", *PORT, "receive"): 3,
        ("nic_pcie_signal_errors_total", *PORT, "transmit"): 4,
        ("nic_phy_link_down_events_total", *PORT): 5,
        ("nic_phy_crc_errors_total", *PORT): 6,
    } == samples


def test_priority_that_moves_gets_its_own_labels():
    clock = FakeClock()
    ethtool = FakeEthtool({"eth3": {"rx_prio3_pause": 1}})
    with node(None, root=H100, ethtool=ethtool, clock=clock) as h100:
        collector = h100.collector("ethtool")
        before = collected(collector)
        ethtool.tables["eth3"] = {"rx_prio4_pause": 2, "other": 0}
        after = collected(collector)

    name = "nic_pfc_pause_frames_total"
    assert {(name, *PORT, "receive", "3"): 1} == before
    assert {(name, *PORT, "receive", "4"): 2} == after


def test_interface_named_in_the_settings_is_read_under_its_own_name():
    tables = {"bond0": {"rx_discards_phy": 7}, "eth2": {"rx_discards_phy": 1}}
    config = ExporterConfig(ethtool=EthtoolConfig(interfaces=["bond0", "eth2", "gone0", "bond0"]))
    with node(None, root=H100, ethtool=FakeEthtool(tables)) as h100:
        samples = collected(h100.collector("ethtool", config))

    # eth2 is that of an RDMA port already.
    assert {("bond0", ""): 7, ("mlx5_0", "1"): 1} == only(samples, "nic_receive_discards_total")


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.ENODEV])
def test_interface_without_statistics_is_left_out_silently(code):
    tables = {"eth2": code, "eth3": {"rx_discards_phy": 1}}
    with node(None, root=H100, ethtool=FakeEthtool(tables)) as h100:
        samples, error = drained(h100.collector("ethtool"))

    assert {("nic_receive_discards_total", "mlx5_1", "1"): 1} == samples
    assert error is None


def test_interface_that_fails_costs_only_itself_and_is_named():
    tables = {"eth2": errno.EIO, "eth3": {"rx_discards_phy": 1}}
    with node(None, root=H100, ethtool=FakeEthtool(tables)) as h100:
        samples, error = drained(h100.collector("ethtool"))

    assert {("nic_receive_discards_total", "mlx5_1", "1"): 1} == samples
    assert "eth2" in str(error)
    assert errno.EIO == error.__cause__.errno


def test_failure_of_every_interface_is_a_failure():
    with (
        node(None, root=H100, ethtool=FakeEthtool({"eth2": errno.EPERM})) as h100,
        pytest.raises(PermissionError),
    ):
        h100.collect("ethtool")


@pytest.mark.parametrize("root", [FIXTURES / "cpu_only", H100], ids=["no port", "no statistics"])
def test_nothing_to_read_is_no_data(root):
    with node(None, root=root, ethtool=FakeEthtool()) as bare, pytest.raises(NoData):
        bare.collect("ethtool")


def test_nic_that_vanishes_and_comes_back_is_read_again():
    ethtool = FakeEthtool({"eth2": {"rx_discards_phy": 1}, "eth3": {"rx_discards_phy": 2}})
    with node(None, root=H100, ethtool=ethtool) as h100:
        collector = h100.collector("ethtool")
        ports = []
        for code in (None, errno.ENODEV, None):
            ethtool.tables["eth2"] = code or {"rx_discards_phy": 1}
            ports.append(
                {key[0] for key in only(collected(collector), "nic_receive_discards_total")}
            )

    assert [{"mlx5_0", "mlx5_1"}, {"mlx5_1"}, {"mlx5_0", "mlx5_1"}] == ports


def test_metric_of_which_no_value_changed_is_the_same_family():
    tables = {"eth2": {"rx_discards_phy": 1, "rx_out_of_buffer": 2, "tx_prio3_pause": 5}}
    with node(None, root=H100, ethtool=FakeEthtool(tables)) as h100:
        collector = h100.collector("ethtool")
        before = {item.spec.name: item for item in collector.collect()}
        tables["eth2"]["tx_prio3_pause"] = 6
        tables["eth2"]["rx_out_of_buffer"] = 3
        after = {item.spec.name: item for item in collector.collect()}
        h100.clock.now += 5
        later = {item.spec.name: item for item in collector.collect()}

    def changed(earlier, later):
        return {name for name in later if later[name] is not earlier[name]}

    assert {"nic_pfc_pause_frames_total"} == changed(before, after)
    assert {"nic_receive_out_of_buffer_packets_total"} == changed(after, later)


def test_flood_of_interfaces_and_names_stays_bounded(tmp_path):
    for number in range(200):
        port = tmp_path / f"sys/class/infiniband/mlx5_{number}/ports/1/gid_attrs/ndevs"
        port.mkdir(parents=True)
        (port / "0").write_text(f"eth{number}\n")
    table = {f"rx_prio{number}_pause": number for number in range(5000)}
    table |= {f"tx_prio3_pause_{number}": number for number in range(5000)}
    flood = FakeEthtool({f"eth{number}": table for number in range(200)})
    with node(None, root=tmp_path, ethtool=flood) as flooded:
        samples, error = drained(flooded.collector("ethtool"))

    assert 128 * 8 == len(samples)
    assert "128 of 200" in str(error)


@given(
    table=st.dictionaries(
        st.text(max_size=40) | st.sampled_from(sorted(STATISTICS)),
        st.integers(min_value=0, max_value=2**64 - 1),
        max_size=60,
    )
)
def test_no_table_raises(table):
    with node(None, root=H100, ethtool=FakeEthtool({"eth2": table})) as h100:
        samples = h100.collect("ethtool")

    # Names of several drivers may stand for the same series.
    assert len({STATISTICS[name] for name in table if name in STATISTICS}) == len(samples)
    assert {"mlx5_0"} >= {key[1] for key in samples}


def test_names_are_asked_for_once_until_the_number_changes():
    clock = FakeClock()
    reader = FakeEthtool({"e": {"a": 1, "b": 2}})
    statistics = SelectedStatistics(reader, {"b": "B", "c": "C"}.get, clock)
    first = [statistics.read("e") for _ in range(3)]
    reader.tables["e"] = {"c": 3, "a": 1, "b": 2}

    assert [[("B", 2)]] * 3 == first
    assert [("C", 3), ("B", 2)] == statistics.read("e")
    assert 2 == reader.asked.count(("names", "e"))


def test_keys_are_the_same_object_while_the_names_stand():
    clock = FakeClock()
    reader = FakeEthtool({"e": {"a": 1, "b": 2}})
    statistics = SelectedStatistics(reader, {"b": "B"}.get, clock)
    first, _ = statistics.columns("e")
    clock.now += 61
    second, values = statistics.columns("e")

    assert (True, [2]) == (first is second, values)
    assert 2 == reader.asked.count(("names", "e"))


def test_names_that_move_without_a_change_of_number_are_noticed_within_a_minute():
    clock = FakeClock()
    reader = FakeEthtool({"e": {"rx_prio3_pause": 1}})
    statistics = SelectedStatistics(reader, lambda name: name, clock)
    statistics.read("e")
    reader.tables["e"] = {"rx_prio4_pause": 1}
    clock.now += 61

    assert [("rx_prio4_pause", 1)] == statistics.read("e")


def test_name_that_a_driver_has_twice_counts_once():
    class Doubled(FakeEthtool):
        def names(self, interface):
            return ["a", "a"]

        def values(self, interface):
            return [1, 2]

    assert [("a", 1)] == SelectedStatistics(Doubled(), lambda name: name, FakeClock()).read("e")


def test_table_that_keeps_changing_is_an_error_for_this_time_only():
    class Restless(FakeEthtool):
        sizes = iter([3, 4, 2, 2])

        def names(self, interface):
            return ["a", "b"]

        def values(self, interface):
            return [7] * next(self.sizes)

    statistics = SelectedStatistics(Restless(), lambda name: name, FakeClock())
    with pytest.raises(StatisticsChangedError, match="2 names for 4"):
        statistics.read("e")

    assert [("a", 7), ("b", 7)] == statistics.read("e")


@pytest.mark.parametrize(
    ("interface", "code"),
    [
        ("lo", errno.EOPNOTSUPP),
        ("no-such-one", errno.ENODEV),
        ("", errno.ENODEV),
        ("x" * 16, errno.ENODEV),
        ("a\0b", errno.ENODEV),
        ("a/../b", errno.ENODEV),
        ("\udcff", errno.ENODEV),
    ],
    ids=["lo", "missing", "empty", "too long", "nul", "path", "not text"],
)
def test_kernel_refuses_as_documented(interface, code):
    reader = EthtoolIoctl()
    for method in (reader.names, reader.values):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the code is what matters
            method(interface)
        assert code == caught.value.errno


def is_no_interface(name):
    """Return whether the kernel knows no such interface; a colon begins an alias of one."""
    return name.partition(":")[0] not in {known for _, known in socket.if_nameindex()}


@given(st.text(max_size=20).filter(is_no_interface))
def test_no_interface_name_raises_anything_else(interface):
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the code is what matters
        EthtoolIoctl().values(interface)
    assert errno.ENODEV == caught.value.errno


def in_own_network(function):
    """Return what a function returns in a thread with a network namespace of its own."""

    def run():
        # The namespace belongs to this thread alone and ends with it, and its interfaces too.
        if ctypes.CDLL(None).unshare(_NEW_NETWORK) != 0:
            pytest.skip("needs root to make a network namespace")
        return function()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()


@pytest.mark.skipif(shutil.which("ip") is None, reason="needs the ip command")
def test_kernel_answers_for_a_real_interface():
    def read():
        pair = ["ip", "link", "add", "left", "type", "veth", "peer", "name", "right"]
        made = subprocess.run(pair, capture_output=True, check=False)
        if made.returncode:
            pytest.skip(f"no veth here: {made.stderr.decode().strip()}")
        reader = EthtoolIoctl()
        chosen = SelectedStatistics(reader, {"peer_ifindex": "peer"}.get, FakeClock())
        return (
            dict(zip(reader.names("left"), reader.values("left"), strict=True)),
            chosen.read("left"),
            socket.if_nametoindex("right"),
        )

    statistics, chosen, peer = in_own_network(read)

    assert peer == statistics["peer_ifindex"]
    assert [("peer", peer)] == chosen
    assert "rx_queue_0_xdp_packets" in statistics


def test_four_nics_cost_little():
    """Names are not asked for again, and only wanted values are touched."""
    table = {f"other{number}": number for number in range(4000)} | dict.fromkeys(
        DRIVER.expanded(), 1
    )
    asked, touched = [], []

    class Values:
        def __len__(self):
            return len(table)

        def __getitem__(self, place):
            touched.append(place)
            return 1

    class Ready(FakeEthtool):
        def names(self, interface):
            asked.append(interface)
            return list(table)

        def values(self, interface):
            return Values()

    with node(None, root=H100, ethtool=Ready()) as h100:
        collector = h100.collector("ethtool")
        collected(collector)
        interfaces = asked.copy()
        touched.clear()
        list(collector.collect())

    assert len(set(interfaces)) == len(interfaces) == len(asked)
    # The wanted ones stand behind the others.
    assert sorted(len(interfaces) * list(range(4000, len(table)))) == sorted(touched)
