"""Products of matrices, on the CPU by the path that GPUs take."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from peerwatch_checks.accelerators.devices import CPU, Device, seconds_of
from peerwatch_checks.accelerators.floors import FLOORS, floor_of
from peerwatch_checks.check import Context, Outcome, Skip
from peerwatch_checks.checks.host.matrix_product import (
    MatrixProductOptions,
    checksum,
    matrix_product,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Several devices of one model, which are all this machine's CPU.
EIGHT = [replace(CPU, label=f"gpu {index}", model="M") for index in range(8)]


def run(
    folder: Path,
    devices: list[Device],
    result: Callable[[Device, Any], Any] = lambda _device, product: product,
) -> dict[str, Outcome]:
    options = MatrixProductOptions(size=64, repeats=2)
    found = matrix_product(Context(options, "n1", folder, 60.0), devices=devices, result=result)
    return {each.device: each for each in found}


@pytest.fixture(autouse=True)
def durations(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Return how long products take on a device; where nothing is said, 1 s.

    What they take on this machine depends on what else runs there.
    """
    said: dict[str, float] = {}

    def seconds(work: Callable[[], object], device: Device, **_: object) -> float:
        work()
        return said.get(device.label, 1.0)

    monkeypatch.setattr("peerwatch_checks.checks.host.matrix_product.seconds_of", seconds)
    return said


def on_cpus(folder: Path, result: Callable[[Device, Any], Any]) -> dict[str, Outcome]:
    options = MatrixProductOptions(cpu_size=64)
    found = matrix_product(Context(options, "n1", folder, 60.0, procfs=folder), result=result)
    return {each.device: each for each in found}


def test_without_gpus_all_cpus_compute_the_same(tmp_path: Path) -> None:
    outcomes = on_cpus(tmp_path, lambda _device, product: product)
    assert {"cpu float32": "pass", "cpu float64": "pass"} == {
        device: each.status for device, each in outcomes.items()
    }
    assert {"GFLOP/s"} == {each.unit for each in outcomes.values()}
    assert all((each.value or 0.0) > 0 for each in outcomes.values())


def test_one_bit_of_a_product_on_a_cpu_is_found(tmp_path: Path) -> None:
    last = max(os.sched_getaffinity(0))
    rng = random.Random(20)
    times = 0

    def result(device: Device, product: Any) -> Any:
        nonlocal times
        if device.label != f"cpu {last}" or product.itemsize != 4:
            return product
        times += 1
        wrong = product.copy()
        wrong.view("u1").reshape(-1)[rng.randrange(wrong.nbytes)] ^= 1 << rng.randrange(8)
        return wrong if times > 1 else product

    outcome = on_cpus(tmp_path, result)[f"cpu {last} float32"]
    assert ("fail", "high") == (outcome.status, outcome.severity)
    assert "not the same each time" in outcome.message


def test_a_package_that_is_missing_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(Skip, match="numpy is not installed"):
        on_cpus(tmp_path, lambda _device, product: product)
    with pytest.raises(Skip, match="torch is not installed"):
        run(tmp_path, EIGHT)


def failed(outcomes: dict[str, Outcome]) -> list[str]:
    return [device for device, each in outcomes.items() if each.status == "fail"]


def flipped(tensor: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """Return a tensor of which one bit of one element is other than it was."""
    kind = {2: torch.int16, 4: torch.int32}[tensor.element_size()]
    bits = tensor.clone().contiguous().view(kind).flatten()
    place, bit = rng.randrange(len(bits)), rng.randrange(8 * tensor.element_size() - 1)
    bits[place] ^= 1 << bit
    return bits.view(tensor.dtype).view(tensor.shape)


def test_healthy_devices_pass_and_are_measured(tmp_path: Path) -> None:
    found = run(tmp_path, EIGHT)
    assert failed(found) == []
    assert set(found) == {f"gpu {i} {p}" for i in range(8) for p in ("bfloat16", "float32")}
    assert all(each.value is not None and each.value > 0 for each in found.values())


def test_one_flipped_bit_is_found_a_hundred_times_in_a_hundred() -> None:
    rng = random.Random(1)
    generator = torch.Generator().manual_seed(1)
    for turn in range(100):
        kind = (torch.bfloat16, torch.float32)[turn % 2]
        product = torch.randn(256, 256, generator=generator).to(kind)
        assert checksum(product) != checksum(flipped(product, rng))


def test_a_gpu_whose_bits_differ_from_its_peers_is_taken_out(tmp_path: Path) -> None:
    def result(device: Device, product: torch.Tensor) -> torch.Tensor:
        # The same wrong bit each time: it does not differ from itself.
        return flipped(product, random.Random(2)) if device.label == "gpu 3" else product

    found = run(tmp_path, EIGHT, result)
    assert failed(found) == ["gpu 3 bfloat16", "gpu 3 float32"]
    assert found["gpu 3 bfloat16"].severity == "high"
    assert "7 other GPUs" in found["gpu 3 bfloat16"].message


def test_a_gpu_that_differs_from_itself_is_named_also_alone(tmp_path: Path) -> None:
    rng = random.Random(3)
    found = run(tmp_path, [CPU], lambda _device, product: flipped(product, rng))
    assert failed(found) == ["cpu bfloat16", "cpu float32"]
    assert "the second time" in found["cpu float32"].message


def test_other_models_and_halves_are_not_compared(tmp_path: Path) -> None:
    def wrong(labels: set[str]) -> Callable[[Device, torch.Tensor], torch.Tensor]:
        return lambda device, product: (
            flipped(product, random.Random(2)) if device.label in labels else product
        )

    mixed = [*EIGHT[:3], *(replace(each, model="N") for each in EIGHT[3:5])]
    assert failed(run(tmp_path, mixed, wrong({"gpu 3", "gpu 4"}))) == []
    # One of two, two of four: nobody knows whose bits are right.
    assert failed(run(tmp_path, EIGHT[:2], wrong({"gpu 0"}))) == []
    assert failed(run(tmp_path, EIGHT[:4], wrong({"gpu 0", "gpu 1"}))) == []


def test_a_slow_gpu_fails_against_its_peers(tmp_path: Path, durations: dict[str, float]) -> None:
    durations["gpu 6"] = 1.25
    found = run(tmp_path, EIGHT)
    assert failed(found) == ["gpu 6 bfloat16", "gpu 6 float32"]
    assert found["gpu 6 bfloat16"].severity is None
    assert "clocks" in found["gpu 6 bfloat16"].message


def test_what_work_takes_is_measured() -> None:
    assert seconds_of(lambda: torch.ones(8) @ torch.ones(8), CPU, repeats=3) > 0


def test_a_gpu_that_torch_does_not_find_is_not_replaced_by_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (tmp_path / "driver/nvidia/gpus/0000:17:00.0").mkdir(parents=True)
    context = Context(MatrixProductOptions(), "n1", tmp_path, 60.0, procfs=tmp_path)
    with pytest.raises(Skip, match="finds no GPU"):
        list(matrix_product(context))


def test_gpus_that_may_not_be_used_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    (tmp_path / "driver/nvidia/gpus/0000:17:00.0").mkdir(parents=True)
    context = Context(MatrixProductOptions(), "n1", tmp_path, 60.0, gpus=(5,), procfs=tmp_path)
    with pytest.raises(Skip, match=r"None of the GPUs \[5\]"):
        list(matrix_product(context))


def test_no_run_begins_after_the_deadline() -> None:
    runs: list[int] = []
    seconds_of(lambda: runs.append(1), CPU, repeats=1000, deadline=0.0)
    assert len(runs) == 2


@pytest.mark.parametrize(
    ("model", "floor"),
    [
        ("NVIDIA H100 80GB HBM3", 1905),
        ("NVIDIA A100-SXM4-80GB", 1173),
        ("NVIDIA A100-SXM4-40GB", None),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("Tesla T4", None),
    ],
)
def test_floors_are_those_of_the_model(model: str, floor: float | None) -> None:
    assert floor_of(model, "memory") == floor


def test_a_model_has_one_entry() -> None:
    assert len({floors.words for floors in FLOORS}) == len(FLOORS)
