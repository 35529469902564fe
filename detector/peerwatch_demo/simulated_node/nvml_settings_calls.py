"""The fake library's answers about settings, limits, video units and instances of a board."""

from __future__ import annotations

from typing import Any

import pynvml

from peerwatch_demo.simulated_node.nvml_registry import (
    ReturnCode,
    device_function,
    store_address,
    value_of,
)


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
