"""How a node is set up: collector node_config on trees that are good, foreign, hostile or shut."""

from __future__ import annotations

import os
import struct

import pytest

from foreign_tree import TREES, unpack
from hardware_cases import FakeClock, node, only
from pci_tree import GPU, NIC, PciFiles
from peerwatch_exporter.catalog.config_keys import (
    FILE_KEYS,
    MODULES,
    SYSCTLS,
    cpu_model,
    gibibytes,
    parameters,
)
from peerwatch_exporter.catalog.config_values import MOST_CHARACTERS, ConfigValues, clean
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.errors import PartialData
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths
from peerwatch_exporter.sources.host.pci_config import parse_config
from peerwatch_exporter.sources.host.queries import HostQueries, real_queries
from peerwatch_exporter.sources.jobs.rank_configuration import chosen_variables
from procfs_tree import ProcTree


class Host:
    """A host of files that a test writes."""

    def __init__(self, root, *, queries=None, **settings):
        self.root = root
        (root / "proc").mkdir(exist_ok=True)
        (root / "sys").mkdir(exist_ok=True)
        self.clock = FakeClock()
        self.sources = Sources(
            Paths(root / "proc", root / "sys", root / "kmsg"),
            clock=self.clock,
            monotonic=self.clock,
            queries=queries or HostQueries(),
        )
        config = ExporterConfig.model_validate({"node_config": settings})
        self.collector = registrations()["node_config"].factory(config, self.sources)
        self.error = None

    def write(self, path, content):
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())

    def values(self):
        """Return value by key, and keep the class of what could not be read."""
        self.error = None
        found = {}
        try:
            for item in self.collector.collect():
                found |= {labels[-2]: labels[-1] for labels, _ in item.rows}
        except PartialData as partial:
            self.error = getattr(partial, "error_class", None)
        return found


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def config_space(*, payload=0, request=0, acs=None, size=4096):
    content = bytearray(size)
    content[0x34], content[0x40:0x42] = 0x40, bytes([0x01, 0x60])
    content[0x60:0x62] = bytes([0x10, 0])
    struct.pack_into("<H", content, 0x68, payload << 5 | request << 12)
    if acs is not None:
        struct.pack_into("<I", content, 0x100, 0x1 | 0x140 << 20)
        struct.pack_into("<I", content, 0x140, 0xD)
        struct.pack_into("<H", content, 0x146, acs)
    return bytes(content)


def test_every_entry_of_the_tables_has_a_key_of_its_own_and_a_reason():
    entries = [*FILE_KEYS, *SYSCTLS, *MODULES]
    names = [getattr(entry, "key", None) or entry.name for entry in entries]

    assert len(names) == len(set(names))
    assert all(entry.why for entry in entries)


def test_a_file_that_is_there_gives_its_value_and_the_others_none(host):
    host.write("proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
    host.write("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n")

    found = host.values()
    del found["time.service"]

    assert {
        "kernel.release": "6.8.0-45-generic",
        "memory.transparent_hugepages": "always",
        "machine.iommu": "off",
    } == found | {"machine.iommu": "off"}
    assert host.error is None


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"x" * 1_000_000, None),
        (b"one\ntwo\r\n\x1b[31mthree\n", "one two [31mthree"),
        (b"a\0b\0", "a b"),
        (b"\xff\xfe5.4\x80", "��5.4�"),
        (b"", ""),
        (b"\n \0\n", ""),
    ],
    ids=["megabyte", "lines", "nul", "not-utf8", "empty", "blank"],
)
def test_a_hostile_value_is_one_short_line(host, content, expected):
    host.write("proc/sys/kernel/osrelease", content)
    value = host.values().get("kernel.release", "")

    assert len(value) <= MOST_CHARACTERS
    assert value.isprintable()
    if expected is None:
        assert "sha256" in value
    else:
        assert expected == value


def test_long_values_that_differ_at_their_end_stay_two():
    first, second = clean("x" * 5000 + "a"), clean("x" * 5000 + "b")

    assert first != second
    assert {MOST_CHARACTERS} == {len(first), len(second)}


def test_what_is_no_file_is_not_read(host):
    place = host.root / "proc/sys/kernel"
    place.mkdir(parents=True)
    os.mkfifo(place / "osrelease")
    (place / "version").mkdir()

    assert {"kernel.release", "kernel.build"}.isdisjoint(host.values())


def test_boot_parameters_are_those_that_matter():
    line = "BOOT_IMAGE=/v root=UUID=1 ro quiet iommu=pt amd_iommu=on pci=noats password=x"

    assert "amd_iommu=on iommu=pt pci=noats" == parameters(line)
    assert "none" == parameters("root=/dev/sda1 ro")


def test_a_cpu_is_named_by_its_model_or_by_the_numbers_of_arm():
    assert cpu_model("processor : 0\nmodel name\t: A CPU\n") == "A CPU"
    assert cpu_model("CPU implementer\t: 0x41\nCPU part\t: 0xd4f\n") == "Arm 0x41 0xd4f"
    assert cpu_model("processor : 0\n") is None


def test_memory_that_firmware_keeps_is_no_difference():
    of = {kib: gibibytes(f"MemTotal:  {kib} kB\n") for kib in (2113384448, 2113283072, 1981300000)}

    assert of[2113384448] == of[2113283072] != of[1981300000]
    assert gibibytes("MemTotal: many kB") is None


def test_devices_that_agree_have_one_key_and_others_one_each():
    values = ConfigValues(100)
    values.add_devices("gpu", "vbios", {"0": "96", "1": "96"})
    values.add_devices("gpu", "ecc", {"0": "on", "1": "off", "2": None})

    assert [("gpu.0.ecc", "on"), ("gpu.1.ecc", "off"), ("gpu.vbios", "96")] == values.rows()


def test_governors_are_counted(host):
    for number, governor in enumerate(("performance", "performance", "powersave")):
        host.write(f"sys/devices/system/cpu/cpufreq/policy{number}/scaling_governor", governor)

    assert "performance 2, powersave 1" == host.values()["cpu.governor"]


def test_modules_have_their_version_or_what_they_were_made_of(host):
    host.write("sys/module/nvidia/version", "570.124.06\n")
    host.write("sys/module/mlx5_core/srcversion", "A1B2\n")
    found = host.values()

    assert "570.124.06" == found["module.nvidia"]
    assert "source A1B2" == found["module.mlx5_core"]
    assert "not loaded" == found["module.nvidia_peermem"]
    assert "module.lustre" not in found


def test_more_values_than_the_limit_are_left_out_and_said(tmp_path):
    host = Host(tmp_path, max_values=3)
    for sysctl in SYSCTLS:
        host.write(f"proc/sys/{sysctl.name.replace('.', '/')}", "1")

    assert 3 == len(host.values())
    assert "config_limit" == host.error


def test_pcie_is_read_from_the_configuration_space(host):
    tree = PciFiles(host.root / "sys")
    gpu = tree.add("pci0000:10/0000:10:01.0/0000:11:00.0", GPU)
    nic = tree.add("pci0000:10/0000:10:01.0/0000:12:00.0", NIC)
    tree.rdma("mlx5_0", nic)
    tree.write(gpu, config=config_space(payload=1, request=5))
    tree.write(nic, config=config_space(payload=2, request=2))
    tree.write("0000:10:01.0", config=config_space(acs=0b1_1101))
    found = host.values()

    assert ("256", "4096") == (
        found["gpu.pcie_max_payload_bytes"],
        found["gpu.pcie_max_read_request_bytes"],
    )
    assert ("512", "512") == (
        found["nic.pcie_max_payload_bytes"],
        found["nic.pcie_max_read_request_bytes"],
    )
    assert "redirects on 1 of 1 bridges" == found["pcie.acs"]
    tree.write("0000:10:01.0", config=config_space(acs=0b1))
    assert "redirects on 1 of 1 bridges" == host.values()["pcie.acs"]
    host.clock.now += 601
    assert "off" == host.values()["pcie.acs"]


def test_a_hidden_configuration_space_is_a_missing_source_and_no_failure(host):
    tree = PciFiles(host.root / "sys")
    gpu = tree.add("pci0000:10/0000:11:00.0", GPU)
    tree.write(gpu, config=config_space(size=4096)[:64])
    found = host.values()

    assert "gpu.pcie_max_payload_bytes" not in found
    assert "16" == found["gpu.pcie_width_max"]
    assert "source_missing" == host.error


@pytest.mark.parametrize("seed", range(20))
def test_a_garbled_configuration_space_ends(seed):
    content = bytes((i * 37 + seed * 101) * (seed + 3) % 256 for i in range(4096))
    found = parse_config(content)

    assert found.max_payload_bytes is None or found.max_payload_bytes >= 128
    assert parse_config(b"\xff" * 4096).redirects is None


RANK = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "SLURM_JOB_ID": "7"}
LIMITS = "Limit  Soft  Hard  Units\nMax open files            1024   4096   files\n"


def ranks_host(tmp_path, *environments, **settings):
    host = Host(tmp_path, **settings)
    tree = ProcTree(tmp_path / "proc").machine()
    for number, extra in enumerate(environments):
        own = RANK | {"RANK": str(number), "LOCAL_RANK": str(number)} | extra
        tree.process(100 + number, own)
        host.write(f"proc/{100 + number}/limits", LIMITS)
    ranks = registrations()["ranks"].factory(ExporterConfig(), host.sources)
    list(ranks.collect())
    return host


def test_variables_that_ranks_share_are_one_value_and_others_go_by_local_rank(tmp_path):
    host = ranks_host(
        tmp_path,
        {"NCCL_DEBUG": "WARN", "OMP_NUM_THREADS": "8", "NCCL_IB_HCA": "mlx5_0"},
        {"NCCL_DEBUG": "WARN", "OMP_NUM_THREADS": "8"},
    )
    found = {key: value for key, value in host.values().items() if key.startswith("rank.")}

    assert {
        "rank.0.NCCL_IB_HCA": "mlx5_0",
        "rank.1.NCCL_IB_HCA": "(unset)",
        "rank.NCCL_DEBUG": "WARN",
        "rank.OMP_NUM_THREADS": "8",
        "rank.WORLD_SIZE": "2",
        "rank.environment": "read",
        "rank.limit_nofile": "1024",
    } == found


def test_secrets_are_never_published(tmp_path):
    host = ranks_host(
        tmp_path,
        {
            "NCCL_API_KEY": "hunter2",
            "UCX_TOKEN": "hunter2",
            "AWS_SECRET_ACCESS_KEY": "hunter2",
            "NCCL_NET_URL": "https://user:hunter2@host/x",
            "LD_LIBRARY_PATH": "/home/hunter2/lib",
            "NCCL_DEBUG_FILE": "/tmp/hunter2",
            "CUDA_VISIBLE_DEVICES": "GPU-hunter2,GPU-b",
        },
    )
    found = host.values()

    assert not [value for value in found.values() if "hunter2" in value]
    assert "https://***@host/x" == found["rank.NCCL_NET_URL"]
    assert "2 by UUID" == found["rank.CUDA_VISIBLE_DEVICES"]
    assert found["rank.LD_LIBRARY_PATH"].endswith(", 1 entry")


def test_hostile_variables_are_bounded(tmp_path):
    flood = {f"NCCL_X{number}": "1" for number in range(1000)}
    host = ranks_host(
        tmp_path, flood | {"NCCL_A": "x" * 1_000_000, "NCCL_\nB": "1", "OMP_C": "1\n2"}
    )
    found = host.values()

    assert len([key for key in found if key.startswith("rank.NCCL_")]) <= 200
    assert len(found["rank.NCCL_A"]) <= MOST_CHARACTERS
    assert all(key.isprintable() for key in found)


def test_ranks_are_not_read_where_that_is_switched_off(tmp_path):
    host = ranks_host(tmp_path, {"NCCL_DEBUG": "WARN"}, rank_variables=False)

    assert not [key for key in host.values() if key.startswith("rank.")]


def test_an_environment_without_permission_has_its_own_reason(tmp_path, monkeypatch):
    host = ranks_host(tmp_path, {"NCCL_DEBUG": "WARN"})

    def refuse(pid):
        raise PermissionError(13, "Permission denied", f"/proc/{pid}/environ")

    monkeypatch.setattr(host.sources.processes, "environment", refuse)
    found = host.values()

    assert "rank.environment" not in found
    assert "1024" == found["rank.limit_nofile"]
    assert "environment_permission_denied" == host.error


def test_time_services_are_those_that_run(tmp_path):
    host = Host(tmp_path)
    tree = ProcTree(tmp_path / "proc").machine()
    tree.process(50, name="chronyd")
    tree.process(51, name="phc2sys")

    assert "chronyd+phc2sys" == host.values()["time.service"]


def test_the_distribution_is_that_of_the_nodes_root(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('NAME="X"\nPRETTY_NAME="Example Linux 12"\n')
    queries = real_queries(tmp_path, tmp_path, tmp_path / "bus")

    assert "Example Linux 12" == Host(tmp_path, queries=queries).values()["os.release"]


def test_the_driver_process_publishes_what_only_the_driver_says():
    boards = [
        {"uuid": f"GPU-{n}", "name": "A", "vbios": vbios, "persistence": 1, "ecc_mode": [1, 0]}
        for n, vbios in enumerate(("96.1", "96.2"))
    ]
    with node({"driver_version": "570.1", "cuda_version": 12080, "gpus": boards}) as host:
        pairs = set(only(host.collect("gpu_settings"), "node_config_info"))

    assert {
        ("driver.cuda", "12.8"),
        ("driver.nvidia", "570.1"),
        ("gpu.count", "2"),
        ("gpu.0.vbios", "96.1"),
        ("gpu.1.vbios", "96.2"),
        ("gpu.ecc", "on, off after a reset"),
        ("gpu.persistence", "on"),
    } <= pairs
    assert "gpu.vbios" not in {key for key, _ in pairs}


@pytest.mark.parametrize("name", ["hgx_h100", "nic_makers"])
def test_trees_of_others_are_read(tmp_path, name):
    host = Host(tmp_path)
    unpack(TREES / f"{name}.sys.ttar", tmp_path / "sys")
    found = host.values()

    assert int(found["nic.count"]) >= 3
    assert any(key.endswith(".firmware") for key in found)
    assert all(value.isprintable() and len(value) <= MOST_CHARACTERS for value in found.values())


@pytest.mark.parametrize("password", ["secret", "pa/ss", "p@ss", "a/b@c"])
def test_a_login_is_hidden_whatever_stands_in_its_password(password: str) -> None:
    shown = chosen_variables({"NCCL_NET_URL": f"https://user:{password}@host/x"})

    assert {"NCCL_NET_URL": "https://***@host/x"} == shown
