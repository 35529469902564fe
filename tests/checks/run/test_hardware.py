"""Only values of the same hardware are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_checks.run.hardware import comparable, hardware_of
from peerwatch_common.check_results.record import Record

if TYPE_CHECKING:
    from pathlib import Path


def test_models_of_gpus_and_cpu(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A CPU\nflags\t: a b\n" * 2)
    for number in range(2):
        gpu = tmp_path / f"driver/nvidia/gpus/0000:0{number}:00.0"
        gpu.mkdir(parents=True)
        (gpu / "information").write_text("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ: 17\n")

    assert {"gpu": "NVIDIA H100 80GB HBM3", "cpu": "A CPU"} == hardware_of(tmp_path)


def test_an_arm_cpu_is_known_by_its_numbers(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("CPU implementer\t: 0x41\nCPU part\t: 0xd4f\n" * 2)

    assert {"cpu": "Arm 0x41 0xd4f"} == hardware_of(tmp_path)


def test_a_node_that_says_nothing(tmp_path: Path) -> None:
    assert {} == hardware_of(tmp_path)


def record(value: float | None, device: str = "gpu 0", **versions: str) -> Record:
    return Record(
        *("copy", "host", device, "pass", "low", "Well.", 1.0, 1.0, "n1"),
        value=value,
        versions=versions,
    )


def test_gpus_of_other_models_are_left_out() -> None:
    records = [
        record(1.0, gpu="H100", cpu="A"),
        record(2.0, gpu="A100", cpu="A"),
        record(3.0, cpu="A"),
        record(4.0, gpu="H100", cpu="B"),
        record(None, gpu="H100", cpu="A"),
        record(5.0, gpu="H100", cpu="A", torch="2"),
        record(6.0, "gpu 1", gpu="H100", cpu="A"),
    ]

    found = comparable(records, {"gpu": "H100", "cpu": "A"})

    assert {"gpu 0": (1.0, 5.0), "gpu 1": (6.0,)} == found
    assert {"gpu 0": (3.0,)} == comparable(records, {"cpu": "A"})
