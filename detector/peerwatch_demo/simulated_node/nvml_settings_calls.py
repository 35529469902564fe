"""The fake library's answers about settings, limits, video units and instances of a board."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pynvml

from peerwatch_demo.simulated_node.nvml_registry import (
    ReturnCode,
    device_function,
    library_function,
    store_address,
    value_of,
)

if TYPE_CHECKING:
    from peerwatch_demo.simulated_node.nvml_library import FakeNvml


@device_function("nvmlDeviceGetTemperatureThreshold")
def _threshold(gpu: dict[str, Any], kind: Any, celsius: Any) -> int:
    celsius._obj.value = value_of(gpu, "temperature_limits", str(kind.value))
    return 0


@device_function("nvmlDeviceGetPowerManagementLimitConstraints")
def _constraints(gpu: dict[str, Any], low: Any, high: Any) -> int:
    low._obj.value = value_of(gpu, "power_limits", "min")
    high._obj.value = value_of(gpu, "power_limits", "max")
    return 0


@device_function("nvmlDeviceGetPowerManagementDefaultLimit")
def _default_limit(gpu: dict[str, Any], limit: Any) -> int:
    limit._obj.value = value_of(gpu, "power_limits", "default")
    return 0


@device_function("nvmlDeviceGetPowerManagementLimit")
def _limit(gpu: dict[str, Any], limit: Any) -> int:
    limit._obj.value = value_of(gpu, "power_limits", "management")
    return 0


@device_function("nvmlDeviceGetEccMode")
def _ecc_mode(gpu: dict[str, Any], current: Any, pending: Any) -> int:
    current._obj.value, pending._obj.value = value_of(gpu, "ecc_mode")
    return 0


@library_function("nvmlSystemGetCudaDriverVersion_v2")
def _cuda_version(fake: FakeNvml, version: Any) -> int:
    version._obj.value = value_of(fake.scenario, "cuda_version")
    return 0


@device_function("nvmlDeviceGetComputeMode")
def _compute_mode(gpu: dict[str, Any], mode: Any) -> int:
    mode._obj.value = value_of(gpu, "compute_mode")
    return 0


@device_function("nvmlDeviceGetApplicationsClock")
def _application_clock(gpu: dict[str, Any], domain: Any, megahertz: Any) -> int:
    megahertz._obj.value = value_of(gpu, "application_clocks", str(domain.value))
    return 0


def _version_text(function: str, key: str) -> None:
    @device_function(function)
    def read(gpu: dict[str, Any], buffer: Any, _length: Any = None) -> int:
        buffer.value = value_of(gpu, key).encode()
        return 0


_version_text("nvmlDeviceGetInforomImageVersion", "inforom")
_version_text("nvmlDeviceGetGspFirmwareVersion", "gsp_firmware")


def _video(function: str, key: str) -> None:
    @device_function(function)
    def read(gpu: dict[str, Any], percent: Any, microseconds: Any) -> int:
        percent._obj.value, microseconds._obj.value = value_of(gpu, key), 167_000
        return 0


_video("nvmlDeviceGetEncoderUtilization", "encoder")
_video("nvmlDeviceGetDecoderUtilization", "decoder")


@device_function("nvmlDeviceGetMaxMigDeviceCount")
def _most_instances(gpu: dict[str, Any], count: Any) -> int:
    count._obj.value = 7 if "mig" in gpu else 0
    return 0


@device_function("nvmlDeviceGetMigDeviceHandleByIndex")
def _instance(gpu: dict[str, Any], place: Any, handle: Any) -> int:
    if place.value >= len(gpu.get("mig_instances", ())):
        raise ReturnCode(pynvml.NVML_ERROR_NOT_FOUND)
    # Each instance knows where its handle points: instances are boards of their own to the library.
    store_address(handle, gpu["mig_instances"][place.value]["address"])
    return 0


def _instance_number(function: str, key: str) -> None:
    @device_function(function)
    def read(gpu: dict[str, Any], number: Any) -> int:
        number._obj.value = value_of(gpu, key)
        return 0


_instance_number("nvmlDeviceGetGpuInstanceId", "gpu_instance")
_instance_number("nvmlDeviceGetComputeInstanceId", "compute_instance")
