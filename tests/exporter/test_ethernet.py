"""The ethernet collector: physical interfaces, and the slaves of bonds."""

from __future__ import annotations

from pathlib import Path

import pytest

from hardware_cases import collected, only
from peerwatch_exporter.collectors.ethernet import EthernetCollector
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths


def interface(root: Path, name: str, files: dict[str, str], *, physical: bool = True) -> None:
    for path, content in {"type": "1", **files}.items():
        file = root / "class/net" / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")
    if physical:
        (root / "class/net" / name / "device").mkdir()


def collect(root: Path):
    return collected(EthernetCollector(ExporterConfig(), Sources(Paths(root, root, root))))


def test_errors_and_link_losses_of_physical_interfaces(tmp_path):
    interface(
        tmp_path,
        "eth0",
        {"carrier_down_count": "3", "statistics/rx_crc_errors": "7", "statistics/collisions": "0"},
    )
    interface(tmp_path, "veth1", {"statistics/rx_crc_errors": "9"}, physical=False)
    interface(tmp_path, "ib0", {"type": "32", "statistics/rx_crc_errors": "9"})

    samples = collect(tmp_path)

    assert {("eth0",): 3} == only(samples, "ethernet_carrier_losses_total")
    assert {("eth0", "crc"): 7, ("eth0", "collision"): 0} == only(samples, "ethernet_errors_total")


@pytest.mark.parametrize(
    ("status", "up"), [("up", 1), ("down", 0), ("going down", 1), ("going back", 0)]
)
def test_a_slave_is_up_as_its_bond_sees_it(tmp_path, status, up):
    slave = {"bonding_slave/mii_status": status, "bonding_slave/link_failure_count": "4"}
    interface(tmp_path, "eth0", slave)
    interface(tmp_path, "bond0", {}, physical=False)
    (tmp_path / "class/net/eth0/master").symlink_to("../bond0")

    samples = collect(tmp_path)

    assert {("bond0", "eth0"): up} == only(samples, "bond_slave_up")
    assert {("bond0", "eth0"): 4} == only(samples, "bond_slave_link_failures_total")


def test_a_port_of_a_bridge_is_no_slave(tmp_path):
    interface(tmp_path, "eth0", {})
    interface(tmp_path, "br0", {}, physical=False)
    (tmp_path / "class/net/eth0/master").symlink_to("../br0")

    assert {} == only(collect(tmp_path), "bond_slave_up")


def test_a_value_that_is_missing_or_garbled_costs_only_itself(tmp_path):
    interface(
        tmp_path,
        "eth0",
        {"statistics/rx_crc_errors": "what", "statistics/rx_frame_errors": "2"},
    )

    assert {("eth0", "frame"): 2} == only(collect(tmp_path), "ethernet_errors_total")


def test_a_node_without_ethernet_has_no_data(tmp_path):
    interface(tmp_path, "ib0", {"type": "32"})

    with pytest.raises(NoData, match="no Ethernet interface"):
        collect(tmp_path)
