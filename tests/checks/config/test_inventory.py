"""What a node has, and how it differs from what its kind must have."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from peerwatch_checks.__main__ import main
from peerwatch_checks.check import Context, Outcome
from peerwatch_checks.checks.config.inventory import InventoryOptions, inventory
from peerwatch_checks.facts.inventory import Roots, gpu_facts, several
from peerwatch_checks.facts.inventory import inventory as facts_of

if TYPE_CHECKING:
    pass

GPUS = {"gpu.count": "8", "gpu.model": "8 x NVIDIA H100 80GB HBM3", "gpu.driver": "550.54.15"}


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    proc, sysfs = tmp_path / "proc", tmp_path / "sys"
    put(proc / "cpuinfo", "processor\t: 0\nmodel name\t: Xeon  8480\nprocessor\t: 1\n")
    put(proc / "meminfo", "MemTotal:       2113500000 kB\nMemFree: 1 kB\n")
    put(
        proc / "self" / "mounts",
        "proc /proc proc rw 0 0\n10.0.0.1:/x /data nfs4 ro,relatime 0 0\nbroken\n",
    )
    put(proc / "sys" / "kernel" / "osrelease", "6.8.0-45-generic\n")
    for index in range(2):
        port = sysfs / "class" / "infiniband" / f"mlx5_{index}" / "ports" / "1"
        put(port / "state", "4: ACTIVE\n")
        put(port / "rate", "400 Gb/sec (4X NDR)\n")
        put(port / "link_layer", "InfiniBand\n")
        put(port.parents[1] / "fw_ver", "28.39.1002\n")
    put(sysfs / "class" / "net" / "eth0" / "device" / "vendor", "0x15b3\n")
    put(sysfs / "class" / "net" / "eth0" / "speed", "25000\n")
    put(sysfs / "class" / "net" / "eth0" / "operstate", "up\n")
    put(sysfs / "class" / "net" / "veth1" / "speed", "10000\n")
    put(sysfs / "block" / "nvme0n1" / "size", "7501476528\n")
    put(sysfs / "block" / "loop0" / "size", "8\n")
    put(tmp_path / "etc" / "os-release", 'NAME="x"\nPRETTY_NAME="Ubuntu 22.04.4 LTS"\n')
    return tmp_path


def run(node: Path, expectation: Path | None = None, **gpus: str) -> list[Outcome]:
    context = Context(
        InventoryOptions(expectation=expectation),
        "n1",
        node,
        10.0,
        procfs=node / "proc",
        sysfs=node / "sys",
        rootfs=node,
    )
    return list(inventory(context, nvml=lambda: {**GPUS, **gpus}))


def facts(node: Path) -> dict[str, str]:
    return facts_of(Roots(node / "proc", node / "sys", node), lambda: GPUS)


def test_what_a_node_has_is_counted(node: Path) -> None:
    found = facts(node)
    assert found.pop("system.page_bytes")
    assert found == {
        "cpu.count": "2",
        "cpu.model": "Xeon 8480",
        "disk.sizes": "1 x nvme 3840 GB",
        "memory.total": "2016 GiB",
        "mount.shared": "nfs4 /data ro",
        "net.interfaces": "1 x 25000 Mb/s up",
        "rdma.firmware": "2 x 28.39.1002",
        "rdma.ports": "2 x InfiniBand 400 Gb/sec active",
        "system.distribution": "Ubuntu 22.04.4 LTS",
        "system.kernel": "6.8.0-45-generic",
        **GPUS,
    }


def test_an_arm_cpu_is_known_by_its_numbers(node: Path) -> None:
    put(node / "proc" / "cpuinfo", "processor : 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n")
    assert facts(node)["cpu.model"] == "Arm 0x41 0xd4f"


def test_an_empty_tree_has_nothing_and_nothing_fails(tmp_path: Path) -> None:
    found = facts_of(Roots(tmp_path, tmp_path, tmp_path), dict)
    assert set(found) <= {"system.page_bytes"}


def expectation(node: Path, **changed: str) -> Path:
    path = node / "expected.yaml"
    lines = {**facts(node), **changed}
    put(path, "".join(f"{key}: '{value}'\n" for key, value in lines.items()))
    return path


def test_a_node_like_its_kind_passes(node: Path) -> None:
    (found,) = run(node, expectation(node))
    assert found.status == "pass"
    assert "expected.yaml are as expected" in found.message


def test_a_missing_gpu_and_another_driver_are_told_apart(node: Path) -> None:
    path = expectation(node)
    found = run(
        node,
        path,
        **{"gpu.count": "7", "gpu.model": "7 x NVIDIA H100 80GB HBM3", "gpu.driver": "535.1"},
    )
    assert [(each.device, each.status, each.severity) for each in found] == [
        ("gpu.count", "fail", "high"),
        ("gpu.driver", "fail", "low"),
        ("gpu.model", "fail", "high"),
    ]
    assert found[0].message == "gpu.count is 7, expected is 8."


def test_a_port_that_is_down_and_a_mount_that_is_gone_are_named(node: Path) -> None:
    path = expectation(node)
    put(node / "sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n")
    put(node / "proc/self/mounts", "proc /proc proc rw 0 0\n")
    found = {each.device: each for each in run(node, path)}
    assert set(found) == {"rdma.ports", "mount.shared"}
    assert "mount.shared is missing" in found["mount.shared"].message


def test_another_machine_never_passes_and_never_fails(node: Path) -> None:
    (found,) = run(node, expectation(node, **{"cpu.model": "EPYC"}))
    assert found.status == "error"
    assert "another kind of machine" in found.message
    (found,) = run(node, expectation(node), **{"gpu.model": "8 x NVIDIA A100-SXM4-80GB"})
    assert found.status == "error"
    assert "its gpu.model is 8 x NVIDIA H100 80GB HBM3, here it is 8 x NVIDIA A100" in found.message
    (found,) = run(node, expectation(node, **{"gpu.count": "0", "gpu.model": ""}))
    assert found.status == "error"
    assert "its gpu.count is 0, here it is 8" in found.message


def test_what_is_left_of_its_kind_has_failed(node: Path) -> None:
    half = {"gpu.model": "7 x NVIDIA H100 80GB HBM3, 1 x unreadable"}
    assert ["gpu.model"] == [each.device for each in run(node, expectation(node), **half)]
    none = {"gpu.count": "0", "gpu.model": "", "gpu.driver": ""}
    found = run(node, expectation(node), **none)
    assert [("fail", "high"), ("fail", "low"), ("fail", "high")] == [
        (each.status, each.severity) for each in found
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expects nothing"),
        ("a: [1, 2]\n", "must be one value"),
        ("- a\n", "mapping"),
        ("a: {", "not YAML"),
        ("\x00", "not YAML"),
    ],
)
def test_a_file_that_makes_no_sense_is_an_error(node: Path, text: str, reason: str) -> None:
    put(node / "bad.yaml", text)
    (found,) = run(node, node / "bad.yaml")
    assert found.status == "error"
    assert reason in found.message


def test_no_file_is_no_pass(node: Path) -> None:
    (found,) = run(node)
    assert found.status == "skipped"
    assert "--write-expectation" in found.message
    (found,) = run(node, node / "none.yaml")
    assert found.status == "error"


def test_what_is_written_is_what_is_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kind.yaml"
    assert main(["config", "--write-expectation", str(path)]) == 0
    assert str(path) in capsys.readouterr().out
    options = InventoryOptions(expectation=path)
    (found,) = inventory(Context(options, "n1", tmp_path, 10.0))
    assert found.status == "pass", found.message

    assert main(["config", "--write-expectation", str(tmp_path / "no" / "kind.yaml")]) == 3
    assert "cannot be written" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["light", "--write-expectation", str(path)])
    assert ended.value.code == 3


def handle_of(index: int) -> int:
    if index:
        raise RuntimeError("GPU is lost")
    return index


def test_a_gpu_that_is_lost_and_functions_that_are_missing_cost_only_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Two GPUs, the second of which does not answer; the library knows little.
    library = {
        "NVML_NVLINK_MAX_LINKS": 18,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlSystemGetDriverVersion": lambda: b"550.54.15",
        "nvmlDeviceGetHandleByIndex": handle_of,
        "nvmlDeviceGetName": lambda _handle: "NVIDIA H100",
        "nvmlDeviceGetNvLinkState": lambda _handle, link: int(link != 3),
    }
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(**library))
    assert gpu_facts() == {
        "gpu.count": "2",
        "gpu.driver": "550.54.15",
        "gpu.memory": "1 x unknown",
        "gpu.model": "1 x NVIDIA H100, 1 x unreadable",
        "gpu.nvlinks": "1 x 17",
        "gpu.pcie": "1 x gen ? x?",
        "gpu.vbios": "1 x unknown",
    }


def test_several_values_are_counted_in_order() -> None:
    assert several(["b", "a", "b"]) == "1 x a, 2 x b"
    assert several([]) == ""
