"""How GPUs and their driver are set up, as values to compare nodes by."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_exporter.sources.gpu.nvml import Nvml
    from peerwatch_exporter.sources.gpu.nvml_gpu import Gpu
    from peerwatch_exporter.sources.gpu.nvml_settings import Settings

# nvmlClockType_t and nvmlComputeMode_t: not from pynvml, which the main process does not load.
_CLOCKS = {"graphics": 0, "memory": 2}
_COMPUTE_MODES = {0: "default", 2: "prohibited", 3: "exclusive_process"}


def driver_configuration(nvml: Nvml) -> dict[str, str | None]:
    """Return key and value of what the driver has but once."""
    cuda = nvml.call("nvmlSystemGetCudaDriverVersion_v2")
    return {
        "driver.nvidia": nvml.driver_version,
        # 12080 is CUDA 12.8.
        "driver.cuda": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        "gpu.count": str(nvml.count),
    }


def gpu_configuration(gpu: Gpu, settings: Settings) -> dict[str, str | None]:
    """Return the values of a GPU by aspect; None is what it does not say.

    Raises
    ------
    GpuLostError
        If the GPU is lost.
    """
    identity = gpu.identity
    mode = gpu.call("nvmlDeviceGetComputeMode")
    return {
        "model": identity.name,
        "vbios": identity.vbios,
        "gsp_firmware": _text(gpu.call("nvmlDeviceGetGspFirmwareVersion")),
        "inforom": _text(gpu.call("nvmlDeviceGetInforomImageVersion")),
        "persistence": None if settings.persistence is None else _switch(settings.persistence),
        "ecc": _mode(settings.ecc),
        "mig": _mode(settings.mig),
        "compute_mode": None if mode is None else _COMPUTE_MODES.get(mode, str(mode)),
        **{
            f"power_limit_{name}_watts": f"{watts:g}"
            for name, watts in settings.power_limits_watts.items()
        },
        **_clocks(gpu, "clock_max", "nvmlDeviceGetMaxClockInfo"),
        **_clocks(gpu, "clock_application", "nvmlDeviceGetApplicationsClock"),
    }


def _clocks(gpu: Gpu, name: str, function: str) -> dict[str, str | None]:
    megahertz = {domain: gpu.call(function, number) for domain, number in _CLOCKS.items()}
    return {
        f"{name}_{domain}_megahertz": None if value is None else str(value)
        for domain, value in megahertz.items()
    }


def _text(answer: object) -> str | None:
    """Return a version as text; bindings of some years answer with bytes."""
    if isinstance(answer, bytes):
        return answer.decode("utf-8", "replace")
    return answer if isinstance(answer, str) else None


def _mode(states: Mapping[str, bool]) -> str | None:
    """Return whether a mode is on, and what it will be if that differs."""
    if "current" not in states:
        return None
    now, later = states["current"], states.get("pending", states["current"])
    return _switch(now) if now == later else f"{_switch(now)}, {_switch(later)} after a reset"


def _switch(state: bool) -> str:
    return "on" if state else "off"
