"""Whether a node is in use: then no check may run that puts load on it."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from peerwatch_checks.facts.gpu_use import GpuUse
    from peerwatch_checks.settings.config import BusyConfig

_CHECKPOINT = "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
_PODS = "var/lib/kubelet/pods"
# Debian's program may have a suffix: slurmstepd-wlm.
_STEP = re.compile(r"^slurmstepd[\w-]*: \[(\d+)\.")
# Chosen: long enough for a mean (50 ticks of a CPU), short enough to wait for.
_CPU_SECONDS = 0.5


def busy(
    config: BusyConfig,
    environment: Mapping[str, str],
    rootfs: Path,
    gpus: Callable[[], Iterable[GpuUse] | str],
) -> str:
    """Return what the node is in use by, a sentence; empty: it is idle.

    Parameters
    ----------
    config
        What counts.
    environment
        Variables of this process: they name its own job and pod.
    rootfs
        The node's root.
    gpus
        Returns how the GPUs are used, or why nobody knows.
    """
    if config.slurm and (reason := _slurm_step(environment.get("SLURM_JOB_ID", ""))):
        return reason
    if config.kubernetes and (reason := _other_pod(rootfs, environment.get("POD_UID", ""))):
        return reason
    if reason := _gpus(gpus(), config.gpu_memory_bytes):
        return reason
    return _cpu(config.cpu_ratio)


def _slurm_step(own_job: str) -> str:
    import psutil  # noqa: PLC0415 - a list of checks needs no processes

    for process in psutil.process_iter(["cmdline"]):
        found = _STEP.match(" ".join(process.info["cmdline"] or ()))
        if found is not None and found[1] != own_job:
            return f"Slurm's job {found[1]} runs on the node."
    return ""


def _other_pod(rootfs: Path, own_pod: str) -> str:
    """Return which other pod has a GPU, by the kubelet's own notes; they outlive a pod's end."""
    try:
        notes = json.loads((rootfs / _CHECKPOINT).read_text(encoding="utf-8"))
        entries = notes["Data"]["PodDeviceEntries"] or ()
        for entry in entries:
            pod, resource = str(entry["PodUID"]), str(entry["ResourceName"])
            if "gpu" in resource and pod != own_pod and (rootfs / _PODS / pod).exists():
                return f"The pod {pod} has {resource}."
    except (OSError, ValueError, KeyError, TypeError):
        # No kubelet, or notes of another form: the processes on the GPUs are counted as well.
        return ""
    return ""


def _gpus(found: Iterable[GpuUse] | str, most_bytes: int) -> str:
    if isinstance(found, str):
        return found
    for gpu in found:
        if gpu.processes:
            pids = ", ".join(map(str, gpu.processes[:5]))
            return f"GPU {gpu.index} is in use by process {pids}."
        if gpu.memory_bytes > most_bytes:
            return (
                f"{gpu.memory_bytes / 1024**2:.0f} MiB of GPU {gpu.index} are in use, "
                f"{most_bytes / 1024**2:.0f} MiB at most (busy.gpu_memory_bytes)."
            )
    return ""


def _cpu(most: float) -> str:
    import psutil  # noqa: PLC0415

    if most >= 1 or not os.path.exists("/proc/stat"):  # noqa: PTH110 - a sandbox may lack it
        return ""
    used = psutil.cpu_percent(interval=_CPU_SECONDS) / 100
    if used > most:
        return f"{used:.0%} of the CPU time is in use, {most:.0%} at most (busy.cpu_ratio)."
    return ""
