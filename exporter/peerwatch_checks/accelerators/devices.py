"""The devices to test, and how long what they are given takes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from peerwatch_checks.check import Skip

if TYPE_CHECKING:
    from peerwatch_checks.check import Context

# The first runs of a kernel load it, choose an algorithm and raise the clocks; 3 to 5 are usual.
WARM_UPS = 4
# Any will do that is the same on all nodes and in all runs, as their results are compared.
SEED = 20
# Of the time until a check's deadline, what it measures for; the rest is for loading torch.
MEASURING_SHARE = 0.6
# Of what is free on a device, this share is used at most: a check must never run out of memory.
# Chosen: a fifth is left for what torch and libraries allocate themselves.
_MEMORY_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Device:
    """One device to test.

    Parameters
    ----------
    name
        As torch knows it: ``cuda:3``, ``cpu``.
    label
        As results name it: ``gpu 3``, ``cpu``.
    model
        As the driver names it: ``NVIDIA H100 80GB HBM3``; what is not of one model is not
        compared.
    free_bytes
        Memory that nobody uses; None: not known.
    """

    name: str
    label: str
    model: str
    free_bytes: int | None = None

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.name.startswith("cuda")

    def fits(self, size: int) -> int:
        """Return a size in bytes, or less where the device has no room for it."""
        return size if self.free_bytes is None else min(size, int(self.free_bytes * _MEMORY_SHARE))


CPU = Device("cpu", "cpu", "cpu")


def gpus(context: Context) -> list[Device]:
    """Return the GPUs that may be used, in order.

    Raises
    ------
    Skip
        If torch was built without CUDA, finds no GPU, or none of those that may be used.
    """
    import torch  # noqa: PLC0415 - only checks that need it load it

    if not torch.cuda.is_available():
        built = torch.version.cuda or "no CUDA"
        raise Skip(f"torch {torch.__version__} (built for {built}) finds no GPU.")
    found = []
    for index in range(torch.cuda.device_count()):
        if context.gpus is not None and index not in context.gpus:
            continue
        free, _total = torch.cuda.mem_get_info(index)
        model = torch.cuda.get_device_name(index)
        found.append(Device(f"cuda:{index}", f"gpu {index}", model, free))
    if not found:
        raise Skip(f"None of the GPUs {list(context.gpus or ())} that may be used is here.")
    return found


def gpus_or_cpu(context: Context) -> list[Device]:
    """Return the GPUs that may be used, or the CPU where there is none."""
    try:
        return gpus(context)
    except Skip:
        return [CPU]


@contextmanager
def released() -> Iterator[None]:
    """Give memory back to the devices afterwards: the next check, or a job, needs it."""
    try:
        yield
    finally:
        import torch  # noqa: PLC0415 - only checks that need it load it

        if torch.cuda.is_available():
            gc.collect()
            torch.cuda.empty_cache()


def seconds_of(
    work: Callable[[], object],
    device: Device,
    *,
    repeats: int,
    deadline: float | None = None,
    least: bool = False,
) -> float:
    """Return how long some work takes on a device, in seconds: the median of some runs.

    Parameters
    ----------
    work
        Starts it; on a GPU it need not wait for the end.
    device
        Where it runs; CUDA events take the time there, a monotonic clock elsewhere.
    repeats
        How often it is timed, after warming up.
    deadline
        A time of ``time.monotonic()`` after which no new run is begun; at least one is timed.
    least
        Return the least duration, for work on processors that others use as well.
    """
    for _ in range(WARM_UPS):
        work()
        if _late(deadline):
            break
    timed = _timed_by_events if device.is_gpu else _timed_by_clock
    durations = []
    for _ in range(repeats):
        durations.append(timed(work, device))
        if _late(deadline):
            break
    return min(durations) if least else median(durations)


def synchronize(device: Device) -> None:
    """Wait until a device has done all that it was given."""
    if device.is_gpu:
        import torch  # noqa: PLC0415 - only checks that need it load it

        torch.cuda.synchronize(device.name)


def _late(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() > deadline


def _timed_by_clock(work: Callable[[], object], _device: Device) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _timed_by_events(work: Callable[[], object], device: Device) -> float:
    import torch  # noqa: PLC0415 - only checks that need it load it

    with torch.cuda.device(device.name):
        event: Any = torch.cuda.Event
        start, end = event(enable_timing=True), event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
    return float(start.elapsed_time(end)) / 1e3
