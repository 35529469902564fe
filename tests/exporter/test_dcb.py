"""How interfaces keep classes of traffic apart: answers of the kernel, whole, cut and garbled."""

from __future__ import annotations

import errno
import random
import struct
from pathlib import Path

import pytest

from hardware_cases import FakeClock
from peerwatch_exporter.catalog.config_values import MOST_CHARACTERS, ConfigValues
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.errors import PartialData
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths
from peerwatch_exporter.sources.host.netlink import GarbledAnswerError
from peerwatch_exporter.sources.nic.dcb import parse_answer, read_dcb

# Laid out by make_answers.c beside them, from the structures of linux/dcbnl.h.
ANSWERS = {
    path.stem: path.read_bytes()
    for path in sorted((Path(__file__).parent / "dcb_answers").glob("*.bin"))
}
# What Linux 6.18 said of the loopback interface: EOPNOTSUPP, and the request.
NONE_OF_IT = bytes.fromhex(
    "300000000200000007000000c2490000a1ffffff"
    "1c0000004e000100070000000000000000150000070001006c6f0000"
)


def said(answer):
    """Return what is understood of an answer; None if it is refused as it may be."""
    try:
        return parse_answer(answer, "eth2")
    except (GarbledAnswerError, OSError):
        return None


def test_an_interface_set_up_for_lossless_traffic():
    assert {
        "application_priorities": "none",
        "buffer_bytes": "130944 130816 0 0 0 0 0 0",
        "buffer_priorities": "00010000",
        "class_limits_kilobits": "none",
        "dcbx": "host cee ieee",
        "dscp_priorities": "0-7:0 8-15:1 16-23:2 24-31:3 32-39:4 40-47:5 48-55:6 56-63:7",
        "ets_classes": "01234567",
        "ets_shares": "50% strict strict 50% strict strict strict vendor",
        "ets_willing": "no",
        "pfc": "00010000",
        "pfc_delay": "7",
    } == parse_answer(ANSWERS["lossless"], "eth2")


def test_an_interface_that_takes_what_the_switch_says():
    assert {
        "application_priorities": "ethertype 35093:3, udp 4791:3",
        "class_limits_kilobits": "0 25000000 0 0 0 0 0 0",
        "dcbx": "firmware ieee",
        "dscp_priorities": "26:3+4 48:6",
        "ets_classes": "00000000",
        "ets_shares": "100% strict strict strict strict strict strict strict",
        "ets_willing": "yes",
        "pfc": "00000000",
        "pfc_delay": "0",
        "pfc_of_switch": "00011000",
        "trust": "dscp pcp",
    } == parse_answer(ANSWERS["negotiated"], "eth2")


def test_a_driver_without_any_of_it_and_an_interface_that_went_are_no_errors():
    gone = NONE_OF_IT[:16] + struct.pack("=i", -errno.ENODEV) + NONE_OF_IT[20:]

    assert parse_answer(NONE_OF_IT, "lo") == {}
    assert parse_answer(gone, "lo") == {}


def test_another_error_has_its_number():
    refused = NONE_OF_IT[:16] + struct.pack("=i", -errno.EPERM) + NONE_OF_IT[20:]

    with pytest.raises(PermissionError):
        parse_answer(refused, "lo")


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_ends_early_is_refused(name):
    whole = ANSWERS[name]
    for length in range(len(whole)):
        with pytest.raises(GarbledAnswerError):
            parse_answer(whole[:length], "eth2")


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_ends_early_and_says_so_tells_nothing_else(name):
    whole = ANSWERS[name]
    expected = parse_answer(whole, "eth2")
    for length in range(20, len(whole)):
        found = said(struct.pack("=I", length) + whole[4:length])
        assert found is None or found.items() <= expected.items()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", ANSWERS)
def test_a_garbled_answer_is_refused_or_gives_short_values(name, seed):
    chance = random.Random(seed)
    for _ in range(50):
        answer = bytearray(ANSWERS[name])
        for _ in range(chance.choice((1, 4, 64))):
            answer[chance.randrange(4, len(answer))] = chance.randrange(256)
        found = said(bytes(answer)) or {}
        values = ConfigValues(100)
        for key, value in found.items():
            values.add(key, value)
        assert all(v.isprintable() and len(v) <= MOST_CHARACTERS for _, v in values.rows())


@pytest.mark.parametrize(
    "answer",
    [b"", b"\0" * 15, struct.pack("=IHHII", 16, 78, 0, 1, 0), struct.pack("=I", 0) + b"\0" * 40],
    ids=["nothing", "half-a-header", "header-alone", "length-of-0"],
)
def test_what_is_no_answer_is_refused(answer):
    with pytest.raises(GarbledAnswerError):
        parse_answer(answer, "eth2")


def test_an_answer_of_another_type_is_refused():
    other = ANSWERS["lossless"][:4] + struct.pack("=H", 16) + ANSWERS["lossless"][6:]

    with pytest.raises(GarbledAnswerError, match="type 16"):
        parse_answer(other, "eth2")


@pytest.mark.parametrize(
    "name", ["lo", "", "no/such", "sixteen-letters-", "a\0b", "\udcff", "nope"]
)
def test_the_running_kernel_says_none_of_an_interface_without_it(name):
    assert read_dcb(name) == {}


class Node:
    """A node with RoCE ports, and what its kernel says of their interfaces."""

    def __init__(self, root, interfaces):
        self.root = root
        self.answers = {}
        for number, interface in enumerate(interfaces):
            port = f"class/infiniband/mlx5_{number}/ports/1"
            self.write(f"{port}/gid_attrs/ndevs/0", interface)
            self.write(f"class/net/{interface}/mtu", "9000")

    def write(self, path, text):
        place = self.root / "sys" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text + "\n")

    def ask(self, interface):
        answer = self.answers.get(interface, NONE_OF_IT)
        if isinstance(answer, Exception):
            raise answer
        return parse_answer(answer, interface)

    def values(self):
        """Return the NICs' values and the class of what could not be read."""
        clock = FakeClock()
        (self.root / "proc").mkdir(exist_ok=True)
        sources = Sources(
            Paths(self.root / "proc", self.root / "sys", self.root / "kmsg"),
            clock=clock,
            monotonic=clock,
            dcb=self.ask,
        )
        collector = registrations()["node_config"].factory(ExporterConfig(), sources)
        found, problem = {}, None
        try:
            for family in collector.collect():
                found |= dict(labels[-2:] for labels, _ in family.rows)
        except PartialData as error:
            problem = error.error_class
        return {key: value for key, value in found.items() if key.startswith("nic.")}, problem


def test_ports_that_agree_have_one_value_and_others_one_each(tmp_path):
    node = Node(tmp_path, ["eth0", "eth1"])
    node.answers = {"eth0": ANSWERS["lossless"], "eth1": ANSWERS["lossless"]}
    assert node.values()[0]["nic.pfc"] == "00010000"

    node.answers["eth1"] = ANSWERS["negotiated"]
    found, problem = node.values()

    assert "nic.pfc" not in found
    assert ("00010000", "00000000") == (found["nic.mlx5_0.pfc"], found["nic.mlx5_1.pfc"])
    assert problem is None


def test_of_a_bond_its_members_are_asked(tmp_path):
    node = Node(tmp_path, ["bond0"])
    node.write("class/net/bond0/bonding/slaves", "eth0 eth1")
    node.answers = {"eth0": ANSWERS["lossless"], "eth1": ANSWERS["lossless"]}
    assert node.values()[0]["nic.pfc"] == "00010000"

    node.answers["eth1"] = ANSWERS["negotiated"]

    assert node.values()[0]["nic.pfc"] == "eth0 00010000, eth1 00000000"


def test_a_file_of_the_driver_stands_before_what_the_kernel_says(tmp_path):
    node = Node(tmp_path, ["eth0"])
    node.answers = {"eth0": ANSWERS["negotiated"]}
    assert node.values()[0]["nic.trust"] == "dscp pcp"

    node.write("class/net/eth0/qos/trust", "dscp")

    assert node.values()[0]["nic.trust"] == "dscp"


def test_the_priority_of_connections_is_read_where_somebody_set_it(tmp_path):
    node = Node(tmp_path, ["eth0"])
    ports = "kernel/config/rdma_cm/mlx5_0/ports/1"
    node.write(f"{ports}/default_roce_tos", "106")
    node.write(f"{ports}/default_roce_mode", "RoCE v2")

    found, _ = node.values()

    assert ("106", "RoCE v2") == (found["nic.cma_tos"], found["nic.cma_mode"])


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PermissionError(errno.EPERM, "Operation not permitted"), "dcb_permission_denied"),
        (OSError(errno.EAFNOSUPPORT, "no netlink"), "dcb_os_error"),
        (TimeoutError("no answer"), "dcb_os_error"),
        (b"\xff" * 40, "dcb_garbled_answer"),
    ],
    ids=["permission", "no-netlink", "silence", "garbage"],
)
def test_what_the_kernel_does_not_say_costs_nothing_else(tmp_path, error, expected):
    node = Node(tmp_path, ["eth0", "eth1"])
    node.answers = {"eth0": error, "eth1": ANSWERS["lossless"]}

    found, problem = node.values()

    assert ("9000", "00010000") == (found["nic.mtu"], found["nic.pfc"])
    assert problem == expected
