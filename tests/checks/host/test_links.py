"""Links that lose packets, went down, or trained down, in trees like /sys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from peerwatch_checks.check import Context, Options, Outcome, Skip
from peerwatch_checks.checks.host.link_errors import LinkErrorsOptions, link_errors
from peerwatch_checks.checks.host.link_rates import link_rates

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def port_of(folder: Path, index: int) -> Path:
    return folder / f"class/infiniband/mlx5_{index}/ports/1"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    for index in range(4):
        put(port_of(tmp_path, index) / "state", "4: ACTIVE\n")
        put(port_of(tmp_path, index) / "rate", "400 Gb/sec (4X NDR)\n")
        put(port_of(tmp_path, index) / "link_layer", "InfiniBand\n")
        put(port_of(tmp_path, index) / "counters/symbol_error", "7\n")
        put(port_of(tmp_path, index) / "counters/link_downed", "1\n")
        put(port_of(tmp_path, index) / "hw_counters/local_ack_timeout_err", "0\n")
    put(tmp_path / "class/net/eth0/device/vendor", "0x15b3\n")
    put(tmp_path / "class/net/eth0/statistics/rx_crc_errors", "0\n")
    put(tmp_path / "class/net/eth0/carrier_down_count", "2\n")
    put(tmp_path / "class/net/lo/statistics/rx_crc_errors", "9\n")
    put(tmp_path / "uptime", f"{20 * 86400}.0 1.0\n")
    return tmp_path


def context(node: Path, options: Options) -> Context:
    return Context(options, "n1", node, 60.0, sysfs=node, procfs=node)


def watched(node: Path, meanwhile: Callable[[], None] = lambda: None) -> dict[str, Outcome]:
    def wait(_seconds: float) -> None:
        meanwhile()

    found = link_errors(context(node, LinkErrorsOptions()), wait=wait)
    return {each.device: each for each in found}


def test_links_without_errors_pass(node: Path) -> None:
    found = watched(node)

    assert ["mlx5_0 port 1", "mlx5_1 port 1", "mlx5_2 port 1", "mlx5_3 port 1", "eth0"] == [*found]
    assert {"pass"} == {each.status for each in found.values()}


@pytest.mark.parametrize(
    ("file", "value", "said"),
    [
        ("counters/symbol_error", 907, "symbol_error 900 in 3 s, at most 10 symbol_error per s"),
        ("counters/link_downed", 2, "link_downed 1 in 3 s, at most no link_downed"),
        ("hw_counters/local_ack_timeout_err", 30, "local_ack_timeout_err 30 in 3 s"),
    ],
)
def test_a_lossy_link_is_named(node: Path, file: str, value: int, said: str) -> None:
    found = watched(node, lambda: put(port_of(node, 2) / file, f"{value}\n"))

    assert ["mlx5_2 port 1"] == [name for name, each in found.items() if each.status == "fail"]
    assert said in found["mlx5_2 port 1"].message


def test_the_counter_that_is_too_high_comes_first(node: Path) -> None:
    put(port_of(node, 0) / "counters/port_rcv_errors", "0\n")

    def meanwhile() -> None:
        for name, count in (("port_rcv_errors", 4), ("symbol_error", 907), ("link_downed", 1)):
            put(port_of(node, 0) / f"counters/{name}", f"{count}\n")

    assert "counted symbol_error 900, port_rcv_errors 4 in 3 s, at most 10 symbol_error" in (
        watched(node, meanwhile)["mlx5_0 port 1"].message
    )


def test_errors_of_an_ethernet_link_are_named_and_few_are_no_fault(node: Path) -> None:
    crc = node / "class/net/eth0/statistics/rx_crc_errors"
    found = watched(node, lambda: put(crc, "20\n"))
    assert "pass" == found["eth0"].status
    assert "rx_crc_errors 20" in found["eth0"].message

    found = watched(node, lambda: put(crc, "2000\n"))
    assert "fail" == found["eth0"].status


def test_a_counter_that_was_reset_is_no_fault_and_one_that_is_gone_is(node: Path) -> None:
    symbols = port_of(node, 0) / "counters/symbol_error"
    assert "pass" == watched(node, lambda: put(symbols, "0\n"))["mlx5_0 port 1"].status

    assert "fail" == watched(node, symbols.unlink)["mlx5_0 port 1"].status


def test_a_link_that_went_down_too_often_is_a_warning(node: Path) -> None:
    put(node / "class/net/eth0/carrier_down_count", "100\n")
    assert "pass" == watched(node)["eth0"].status

    put(node / "class/net/eth0/carrier_down_count", "101\n")
    outcome = watched(node)["eth0"]

    assert "warn" == outcome.status
    assert "went down 101 times in 20.0 days, at most 5 a day" in outcome.message


def test_no_link_is_no_pass(tmp_path: Path) -> None:
    for check, options in ((link_errors, LinkErrorsOptions()), (link_rates, Options())):
        with pytest.raises(Skip):
            list(check(context(tmp_path, options)))


def rates(node: Path) -> list[tuple[str, str]]:
    return [(each.device, each.status) for each in link_rates(context(node, Options()))]


def test_a_port_of_lower_rate_than_its_like_is_named(node: Path) -> None:
    assert [("", "pass")] == rates(node)

    put(port_of(node, 3) / "rate", "200 Gb/sec (4X HDR)\n")
    assert [("mlx5_3 port 1", "fail")] == rates(node)

    # One of another board is for something else.
    put(node / "class/infiniband/mlx5_3/board_id", "MT_0000000359\n")
    assert [("", "pass")] == rates(node)


def test_of_two_ports_nobody_knows_which_is_right(node: Path) -> None:
    for index in (0, 1):
        put(port_of(node, index) / "state", "1: DOWN\n")
    put(port_of(node, 3) / "rate", "200 Gb/sec (4X HDR)\n")

    assert [("", "pass")] == rates(node)


def test_a_port_that_is_down_while_its_like_are_up_is_named(node: Path) -> None:
    put(port_of(node, 2) / "state", "1: DOWN\n")
    assert [("mlx5_2 port 1", "fail")] == rates(node)


def test_an_interface_of_lower_rate_or_down_is_named(tmp_path: Path) -> None:
    for index in range(4):
        interface = tmp_path / f"class/net/eth{index}"
        put(interface / "type", "1\n")
        put(interface / "operstate", "up\n")
        put(interface / "speed", "100000\n")
        put(interface / "device/vendor", "0x15b3\n")
    assert [("", "pass")] == rates(tmp_path)

    put(tmp_path / "class/net/eth1/speed", "25000\n")
    assert [("eth1", "fail")] == rates(tmp_path)
    put(tmp_path / "class/net/eth1/operstate", "down\n")
    put(tmp_path / "class/net/eth1/speed", "-1\n")
    assert [("eth1", "fail")] == rates(tmp_path)
    # Another model, and what has no rate at all, are compared with nobody.
    put(tmp_path / "class/net/eth1/device/vendor", "0x8086\n")
    assert [("", "pass")] == rates(tmp_path)


@pytest.mark.parametrize(
    ("kind", "width", "speed", "status"),
    [
        ("0x030200", "16", "32.0 GT/s PCIe", "pass"),
        ("0x030200", "8", "32.0 GT/s PCIe", "fail"),
        # An idle GPU saves power; a NIC does not.
        ("0x030200", "16", "2.5 GT/s PCIe", "pass"),
        ("0x020700", "16", "16.0 GT/s PCIe", "fail"),
        ("0x010802", "16", "16.0 GT/s PCIe", "fail"),
        # What moves no data of jobs.
        ("0x060400", "1", "2.5 GT/s PCIe", "pass"),
    ],
)
def test_a_pcie_link_that_trained_down_is_named(
    node: Path, kind: str, width: str, speed: str, status: str
) -> None:
    device = node / "devices/pci0000:00/0000:00:01.0/0000:17:00.0"
    put(device / "class", f"{kind}\n")
    put(device / "max_link_width", "16\n")
    put(device / "max_link_speed", "32.0 GT/s PCIe\n")
    put(device / "current_link_width", f"{width}\n")
    put(device / "current_link_speed", f"{speed}\n")
    (node / "bus/pci/devices").mkdir(parents=True)
    (node / "bus/pci/devices/0000:17:00.0").symlink_to(device)

    ((name, found),) = rates(node)

    assert status == found
    assert name.endswith("0000:17:00.0") == (status == "fail")


def test_a_slot_with_fewer_lanes_than_the_device_is_no_fault(node: Path) -> None:
    slot = node / "devices/pci0000:00/0000:00:01.0"
    put(slot / "max_link_width", "8\n")
    test_a_pcie_link_that_trained_down_is_named(node, "0x030200", "8", "32.0 GT/s PCIe", "pass")
