"""Which counters are read, how often, and what happens to files that fail."""

from __future__ import annotations

import errno

import pytest

from fake_ethtool import FakeEthtool
from open_files import open_below
from peerwatch_exporter.sampler.files import CounterFiles
from peerwatch_exporter.sampler.groups import PauseReader, groups_of, readers_of, sampled_ports
from peerwatch_exporter.sampler.ring import MISSING
from peerwatch_exporter.sources.host.sysfs import Sysfs
from peerwatch_exporter.sources.nic.rdma import RdmaPorts
from sampler_node import COUNTERS, LINE_RATE, Tree, settings_of

PAUSES = ("transmit_pause_frames", "receive_pause_frames")


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path, devices=2)


def found(tree, **changes):
    settings = settings_of(tree.root, **changes)
    sysfs = Sysfs(tree.root)
    listed = RdmaPorts(sysfs, settings.exclude_devices, lambda: 0.0)
    ports = sampled_ports(listed, settings.devices)
    return sysfs, ports, settings, list(groups_of(sysfs, ports, settings))


def interface(tree, device, name):
    (tree.root / "class/infiniband" / device / "device" / "net" / name).mkdir(parents=True)


def test_bytes_of_all_ports_are_read_together_and_each_ports_congestion_by_itself(tree):
    *_, groups = found(tree)

    fast = [(name, f"mlx5_{n}") for n in (0, 1) for name in ("transmit_bytes", "receive_bytes")]
    slow = [[(name, f"mlx5_{n}") for name in COUNTERS[2:]] for n in (0, 1)]
    assert [(0.005, fast), (0.010, slow[0]), (0.010, slow[1])] == [
        (group.interval_seconds, [(s.counter.name, s.device) for s in group.series])
        for group in groups
    ]
    assert {LINE_RATE} == {series.line_rate for series in groups[0].series}


@pytest.mark.parametrize(
    ("interval", "lifespan", "expected"),
    [(0.001, "10", 0.010), (0.05, "10", 0.05), (0.001, "100", 0.1), (0.001, "0", 0.001)],
)
def test_congestion_is_not_read_more_often_than_the_kernel_asks_the_nic(
    tree, interval, lifespan, expected
):
    (tree.port("mlx5_0") / "hw_counters" / "lifespan").write_text(lifespan)
    *_, groups = found(tree, interval_seconds=interval, devices=("mlx5_0",))

    assert [interval, expected] == [group.interval_seconds for group in groups]


def test_only_wanted_devices_and_counters_are_read(tree):
    *_, groups = found(tree, devices=("mlx5_1",), counters=("receive_bytes",))

    assert [[("receive_bytes", "mlx5_1")]] == [
        [(series.counter.name, series.device) for series in group.series] for group in groups
    ]
    assert [] == found(tree, exclude_devices=("mlx5_*",))[-1]


def test_port_without_speed_has_no_line_rate(tree):
    tree.set(tree.port("mlx5_0") / "rate", "0 Gb/sec (4X)")
    *_, groups = found(tree, devices=("mlx5_0",), counters=("receive_bytes",))

    assert groups[0].series[0].line_rate is None


def test_pause_frames_are_summed_over_priorities(tree):
    interface(tree, "mlx5_0", "eth0")
    table = {"rx_prio3_pause": 5, "rx_prio4_pause": 7, "tx_prio3_pause": 1, "rx_prio3_bytes": 99}
    sysfs, ports, settings, groups = found(tree, counters=PAUSES)
    (reader,) = readers_of(groups, ports, sysfs, FakeEthtool({"eth0": table}), settings)

    assert ["mlx5_0"] == [groups[0].series[0].device]
    assert [1, 12] == reader.read(0.0)
    assert 0 == reader.missing


@pytest.mark.parametrize(
    "names",
    [
        ("tx_pfc_ena_frames_pri3", "rx_pfc_ena_frames_pri3"),
        ("tx_priority_3_xoff.nic", "rx_priority_3_xoff.nic"),
        ("port.tx_priority_3_xoff_tx", "port.rx_priority_3_xoff_rx"),
        ("frames_tx_pripause", "frames_rx_pripause"),
        ("mac_tx_pfc_pri3_pkt_num", "mac_rx_pfc_pri3_pkt_num"),
        ("tx_pause_prio_3", "rx_pause_prio_3"),
    ],
    ids=["bnxt_en", "ice", "i40e", "ionic", "hns3", "mlx4"],
)
def test_pause_frames_of_other_drivers_are_sampled_too(tree, names):
    interface(tree, "mlx5_0", "eth0")
    table = {names[0]: 4, names[1]: 9, "rx_bytes": 99}
    sysfs, ports, settings, groups = found(tree, counters=PAUSES)
    (reader,) = readers_of(groups, ports, sysfs, FakeEthtool({"eth0": table}), settings)

    assert [4, 9] == reader.read(0.0)
    assert 0 == reader.missing


def test_interface_without_pause_statistics_is_missing_and_asked_again_later(tree):
    interface(tree, "mlx5_0", "eth0")
    ethtool = FakeEthtool({"eth0": errno.EOPNOTSUPP})
    sysfs, ports, settings, groups = found(tree, counters=PAUSES, retry_seconds=10.0)
    (reader,) = readers_of(groups, ports, sysfs, ethtool, settings)
    first = reader.read(0.0)
    asked = len(ethtool.asked)
    ethtool.tables["eth0"] = {"rx_prio0_pause": 3}

    assert [MISSING, MISSING] == first == reader.read(9.0)
    assert asked == len(ethtool.asked)
    assert [MISSING, 3] == reader.read(10.0)
    assert 1 == reader.missing


class CostlyEthtool(FakeEthtool):
    """Burns CPU time at each reading, as a driver that asks its firmware would."""

    def values(self, interface):
        sum(range(100_000))
        return super().values(interface)


def test_costly_statistics_are_read_more_rarely(tree):
    interface(tree, "mlx5_0", "eth0")
    *_, settings, groups = found(tree, counters=PAUSES, max_cpu_ratio=0.001)
    readers = [
        PauseReader(groups[0], "eth0", kind({"eth0": {"rx_prio0_pause": 3}}), 8, settings)
        for kind in (FakeEthtool, CostlyEthtool)
    ]
    for reader in readers:
        for _ in range(20):
            reader.read(0.0)
    cheap, costly = (reader.interval_seconds for reader in readers)

    assert 0.01 <= cheap < costly


def test_files_are_read_in_order(tree):
    paths = [str(tree.counter(name)) for name in ("port_xmit_data", "port_rcv_data")]
    files = CounterFiles(paths, 10.0)
    files.refresh(0.0)
    tree.set(tree.counter("port_xmit_data"), 7)
    tree.set(tree.counter("port_rcv_data"), 8)

    assert [7, 8] == files.read(0.0)
    assert 0 == files.missing
    files.close()
    assert [MISSING, MISSING] == files.read(0.0)


def test_garbled_file_costs_itself_and_is_tried_again_ever_more_rarely(tree):
    bad, good = tree.counter("port_xmit_data"), tree.counter("port_rcv_data")
    files = CounterFiles([str(bad), str(good)], 10.0)
    files.refresh(0.0)
    tree.set(good, 5)
    tree.set(bad, "garbage")
    spoilt = files.read(0.0)
    attempts = []
    for now in range(80):
        before = files._files[0].retry_at
        files.refresh(float(now))
        if files._files[0].retry_at != before:
            attempts.append(now)
    tree.set(bad, 6)
    files.refresh(200.0)

    assert [MISSING, 5] == spoilt
    assert [10, 30, 70] == attempts
    assert [6, 5] == files.read(200.0)


def test_vanished_file_costs_itself_and_its_successor_is_found(tree):
    gone, other = tree.counter("port_xmit_data"), tree.counter("port_rcv_data")
    files = CounterFiles([str(gone), str(other)], 10.0)
    files.refresh(0.0)
    gone.unlink()
    files.refresh(1.0)
    without = files.read(1.0)
    gone.write_text("77\n")
    files.refresh(2.0)
    too_early = files.read(2.0)
    files.refresh(11.0)

    assert MISSING == without[0] == too_early[0]
    assert without[1] == files.read(11.0)[1] > 0
    assert 77 == files.read(11.0)[0]


def test_descriptors_are_closed(tree):
    before = open_below(tree.root)
    path = tree.counter("port_xmit_data")
    files = CounterFiles([str(path)], 0.0)
    for now in range(21):
        tree.set(path, "garbage" if now % 2 else now)
        files.refresh(float(now))
        files.read(float(now))
    assert before + 1 == open_below(tree.root)
    files.close()

    assert before == open_below(tree.root)
