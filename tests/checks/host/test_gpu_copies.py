"""Copies within, to, from and between GPUs, on the CPU by the path that GPUs take."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from peerwatch_checks.accelerators.devices import CPU, Device
from peerwatch_checks.check import Context, Outcome, Skip
from peerwatch_checks.checks.host.gpu_host_copy import GpuHostCopyOptions, gpu_host_copy
from peerwatch_checks.checks.host.gpu_memory_copy import GpuMemoryCopyOptions, gpu_memory_copy
from peerwatch_checks.checks.host.gpu_peer_copy import GpuPeerCopyOptions, gpu_peer_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

COPYING = "peerwatch_checks.accelerators.copying"
EIGHT = [replace(CPU, label=f"gpu {index}", model="M") for index in range(8)]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Keep small copies from waiting for threads of a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def by_device(outcomes: Iterable[Outcome]) -> dict[str, Outcome]:
    return {each.device: each for each in outcomes}


def failed(outcomes: Iterable[Outcome]) -> list[str]:
    return [each.device for each in outcomes if each.status == "fail"]


@pytest.fixture
def memory(tmp_path: Path) -> Context:
    return Context(GpuMemoryCopyOptions(megabytes=1, repeats=1), "n1", tmp_path, 60.0)


@pytest.fixture
def peer(tmp_path: Path) -> Context:
    return Context(GpuPeerCopyOptions(megabytes=1, repeats=1), "n1", tmp_path, 60.0)


@pytest.fixture
def durations(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Return how long copies take on a device, in seconds; 1 ms where nothing is said."""
    said: dict[str, float] = {}

    def seconds(work: Callable[[], object], device: Device, **_: object) -> float:
        work()
        return said.get(device.label, 1e-3)

    monkeypatch.setattr(f"{COPYING}.seconds_of", seconds)
    return said


def test_a_real_copy_is_measured(memory: Context) -> None:
    (found,) = gpu_memory_copy(memory, devices=[CPU])
    assert found.status == "pass"
    assert found.value is not None
    assert found.value > 0


def test_healthy_gpus_pass_and_twice_the_bytes_count(
    memory: Context, durations: dict[str, float]
) -> None:
    found = by_device(gpu_memory_copy(memory, devices=EIGHT))
    assert failed(found.values()) == []
    assert found["gpu 0"].value == pytest.approx(2 * 2**20 / 1e-3 / 1e9)
    durations["gpu 5"] = 1.04e-3
    assert failed(gpu_memory_copy(memory, devices=EIGHT)) == []


def test_a_gpu_at_half_speed_is_named(memory: Context, durations: dict[str, float]) -> None:
    durations["gpu 5"] = 2e-3
    assert failed(gpu_memory_copy(memory, devices=EIGHT)) == ["gpu 5"]


def test_a_floor_decides_where_there_are_no_peers(
    memory: Context, durations: dict[str, float]
) -> None:
    # 1 MiB read and written in 2 us is 1,049 GB/s; an H100 does 1,905 at least.
    durations["gpu 0"] = 2e-6
    alone = replace(CPU, label="gpu 0", model="NVIDIA H100 80GB HBM3")
    assert failed(gpu_memory_copy(memory, devices=[alone])) == ["gpu 0"]
    assert failed(gpu_memory_copy(memory, devices=[replace(alone, model="Tesla T4")])) == []


def test_a_copy_that_is_not_the_same_takes_the_gpu_out(memory: Context) -> None:
    def copy(source: Any, target: Any) -> None:
        target.copy_(source)
        target[7] ^= 1

    (found,) = gpu_memory_copy(memory, devices=EIGHT[:1], copy=copy)
    assert (found.status, found.severity) == ("fail", "high")
    assert "not what was copied" in found.message


def test_both_ways_to_the_host_are_compared_each_by_itself(
    tmp_path: Path, durations: dict[str, float]
) -> None:
    context = Context(GpuHostCopyOptions(megabytes=1, repeats=1), "n1", tmp_path, 60.0)
    durations["gpu 2"] = 1.5e-3
    found = by_device(gpu_host_copy(context, devices=EIGHT))
    assert len(found) == 16
    assert failed(found.values()) == ["gpu 2 from host", "gpu 2 to host"]
    assert "PCIe" in found["gpu 2 to host"].message


def test_of_all_pairs_a_gpu_or_a_link_is_named(
    peer: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow: set[frozenset[str]] = set()
    now: list[frozenset[str]] = []

    def copy(source: Device, target: Device) -> None:
        now[:] = [frozenset({source.label, target.label})]

    def seconds(work: Callable[[], object], _device: Device, **_: object) -> float:
        work()
        return 2e-3 if now[0] in slow else 1e-3

    monkeypatch.setattr(f"{COPYING}.seconds_of", seconds)
    (well,) = gpu_peer_copy(peer, devices=EIGHT, copy=copy)
    assert well.status == "pass"
    assert "All 56 paths" in well.message

    slow.add(frozenset({"gpu 1", "gpu 4"}))
    (link,) = gpu_peer_copy(peer, devices=EIGHT, copy=copy)
    assert (link.status, link.device) == ("fail", "gpu 1 - gpu 4")
    assert link.value == pytest.approx(2**20 / 2e-3 / 1e9)

    slow |= {frozenset({"gpu 6", each.label}) for each in EIGHT}
    found = by_device(gpu_peer_copy(peer, devices=EIGHT, copy=copy))
    assert sorted(found) == ["gpu 1 - gpu 4", "gpu 6"]


def test_all_pairs_below_the_floor_are_nobodys_fault(
    peer: Context, durations: dict[str, float]
) -> None:
    assert durations == {}
    model = [replace(each, model="NVIDIA H100 80GB HBM3") for each in EIGHT[:4]]
    (found,) = gpu_peer_copy(peer, devices=model)
    assert (found.status, found.device) == ("fail", "")
    assert "fabric manager" in found.message


def test_a_copy_between_gpus_that_is_not_the_same_is_told(peer: Context) -> None:
    def copy(source: Device, target: Device) -> Callable[[Any, Any], Any] | None:
        wrong = (source.label, target.label) == ("gpu 0", "gpu 2")
        return (lambda a, b: b.copy_(a + 1)) if wrong else None

    found = gpu_peer_copy(peer, devices=EIGHT[:3], copy=copy)
    told = [each for each in found if "not what was sent" in each.message]
    assert [each.device for each in told] == ["gpu 0 to gpu 2"]


def test_one_gpu_has_no_peer(peer: Context) -> None:
    with pytest.raises(Skip, match="no other"):
        list(gpu_peer_copy(peer, devices=[CPU]))


def test_a_copy_is_made_small_enough_for_the_memory_that_is_free(memory: Context) -> None:
    sizes: list[int] = []
    small = replace(CPU, label="gpu 0", free_bytes=100_000)

    def copy(source: Any, target: Any) -> None:
        sizes.append(source.numel() * source.element_size())
        target.copy_(source)

    (found,) = gpu_memory_copy(memory, devices=[small], copy=copy)
    assert found.status == "pass"
    assert {40_000} == set(sizes)
