"""How a GPU is set, which limits its board has, and who uses it: what changes rarely or slowly."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_exporter.sources.gpu.nvml import Nvml
    from peerwatch_exporter.sources.gpu.nvml_gpu import Gpu

# nvmlTemperatureThresholds_t: not from pynvml, which the main process does not load.
_TEMPERATURES = {
    "shutdown": 0,
    "slowdown": 1,
    "memory_max": 2,
    "core_max": 3,
}
# A GPU has seven instances at most.
_MAX_INSTANCES = 16


class Settings(NamedTuple):
    """How a GPU is set; of modes whether they are on, now and after the next reset.

    Parameters
    ----------
    temperature_limits_celsius
        By limit: shutdown, slowdown, core_max, memory_max.
    power_limits_watts
        By limit: default, min and max (what can be set), and management (what is set).
    persistence
        Whether the driver keeps the GPU initialised while nobody uses it; None if it does not say.
    ecc, mig
        Whether memory is protected, and whether the GPU is split; by current and pending.
    """

    temperature_limits_celsius: Mapping[str, float]
    power_limits_watts: Mapping[str, float]
    persistence: bool | None
    ecc: Mapping[str, bool]
    mig: Mapping[str, bool]


class MigInstance(NamedTuple):
    """A part of a GPU that is split; memory in bytes, None if the driver does not say."""

    gpu_instance: str
    compute_instance: str
    uuid: str
    profile: str
    memory_total_bytes: int | None
    memory_used_bytes: int | None


class Use(NamedTuple):
    """Who uses a GPU, besides its cores.

    Parameters
    ----------
    encoder_ratio, decoder_ratio
        Share of the time in which video was encoded or decoded; None without such a unit.
    process_bytes
        GPU memory by process id; without those of which the driver does not say it.
    instances
        The instances of a GPU in MIG mode.
    """

    encoder_ratio: float | None
    decoder_ratio: float | None
    process_bytes: Mapping[int, int]
    instances: tuple[MigInstance, ...]


def read_settings(gpu: Gpu) -> Settings:
    """Return how a GPU is set.

    Raises
    ------
    GpuLostError
        If the GPU is lost.
    """
    celsius = {
        name: gpu.call("nvmlDeviceGetTemperatureThreshold", kind)
        for name, kind in _TEMPERATURES.items()
    }
    low, high = gpu.call("nvmlDeviceGetPowerManagementLimitConstraints") or (None, None)
    milliwatts = {
        "default": gpu.call("nvmlDeviceGetPowerManagementDefaultLimit"),
        "management": gpu.call("nvmlDeviceGetPowerManagementLimit"),
        "min": low,
        "max": high,
    }
    persistence = gpu.call("nvmlDeviceGetPersistenceMode")
    return Settings(
        # Some boards answer 0 for a limit they do not have.
        {name: float(value) for name, value in celsius.items() if value},
        {name: value / 1e3 for name, value in milliwatts.items() if value},
        None if persistence is None else bool(persistence),
        _modes(gpu.call("nvmlDeviceGetEccMode")),
        _modes(gpu.call("nvmlDeviceGetMigMode")),
    )


def read_use(gpu: Gpu, nvml: Nvml) -> Use:
    """Return who uses a GPU.

    Raises
    ------
    GpuLostError
        If the GPU is lost.
    """
    encoder = gpu.call("nvmlDeviceGetEncoderUtilization")
    decoder = gpu.call("nvmlDeviceGetDecoderUtilization")
    processes = gpu.call("nvmlDeviceGetComputeRunningProcesses") or ()
    held: dict[int, int] = {}
    for process in processes:
        if process.usedGpuMemory is not None:
            held[process.pid] = held.get(process.pid, 0) + process.usedGpuMemory
    return Use(
        None if encoder is None else encoder[0] / 100,
        None if decoder is None else decoder[0] / 100,
        held,
        tuple(_instances(gpu, nvml)),
    )


def _instances(gpu: Gpu, nvml: Nvml) -> list[MigInstance]:
    if not _modes(gpu.call("nvmlDeviceGetMigMode")).get("current"):
        return []
    found = []
    for index in range(min(gpu.call("nvmlDeviceGetMaxMigDeviceCount") or 0, _MAX_INSTANCES)):
        # Places without an instance answer that there is none.
        handle = gpu.call("nvmlDeviceGetMigDeviceHandleByIndex", index)
        if handle is None:
            continue
        memory = nvml.call("nvmlDeviceGetMemoryInfo", handle)
        name = nvml.call("nvmlDeviceGetName", handle) or ""
        found.append(
            MigInstance(
                _text(nvml.call("nvmlDeviceGetGpuInstanceId", handle)),
                _text(nvml.call("nvmlDeviceGetComputeInstanceId", handle)),
                nvml.call("nvmlDeviceGetUUID", handle) or "",
                # "NVIDIA A100-SXM4-80GB MIG 1g.10gb"
                name.rpartition("MIG ")[2],
                None if memory is None else memory.total,
                None if memory is None else memory.used,
            )
        )
    return found


def _modes(answer: list[int] | None) -> dict[str, bool]:
    return {} if answer is None else {"current": bool(answer[0]), "pending": bool(answer[1])}


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
