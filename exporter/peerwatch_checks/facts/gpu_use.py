"""How the GPUs are used, asked of NVML in a process of its own: a call may never return."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass

# Chosen: longer than NVML takes to start on a node with eight GPUs without persistence mode, some
# seconds for each.
_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class GpuUse:
    """What is on one GPU.

    Parameters
    ----------
    index
        Its index.
    processes
        Process ids of those that compute on it.
    memory_bytes
        Memory in use, without what the driver keeps for itself.
    """

    index: int
    processes: tuple[int, ...]
    memory_bytes: int


def gpu_use(gpus: tuple[int, ...] | None, seconds: float = _SECONDS) -> tuple[GpuUse, ...] | str:
    """Return how GPUs are used, or a sentence why nobody knows.

    Parameters
    ----------
    gpus
        Their indices; None: all of the node.
    seconds
        How long the driver may take.
    """
    if gpus == ():
        return ()
    try:
        found = [
            GpuUse(each["index"], tuple(each["processes"]), each["memory_bytes"])
            for each in json.loads(_answer(seconds))
        ]
    except subprocess.TimeoutExpired:
        return f"The GPU driver did not answer within {seconds:g} s: it is not known who uses it."
    except (ValueError, KeyError, TypeError):
        return "The GPU driver does not say who uses the GPUs."
    return tuple(each for each in found if gpus is None or each.index in gpus)


def _answer(seconds: float) -> bytes:
    command = [sys.executable, "-m", "peerwatch_checks.facts.gpu_use"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    try:
        return process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        # One that hangs in the kernel stays; it is not waited for.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        raise
    finally:
        assert process.stdout is not None
        process.stdout.close()


def _all() -> list[GpuUse]:
    import pynvml  # noqa: PLC0415 - in its own process only

    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        # No driver, no GPU: nobody uses one. A driver that is there and fails says nothing.
        return []
    return [_use_of(index) for index in range(pynvml.nvmlDeviceGetCount())]


def _use_of(index: int) -> GpuUse:
    import pynvml  # noqa: PLC0415

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used
    except pynvml.NVMLError:
        memory = 0
    return GpuUse(index, tuple(each.pid for each in processes), memory)


if __name__ == "__main__":
    json.dump([asdict(each) for each in _all()], sys.stdout)
