"""Limits of the GPUs' boards, and the modes they are in: what an operator sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.config_keys import NODE_CONFIG
from peerwatch_exporter.catalog.config_values import ConfigValues
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.sources.gpu.nvml_access import GpuLostError, shared_nvml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

_MODE = ("gpu", "uuid", "state")
_LIMIT = ("gpu", "uuid", "limit")

SPECS: tuple[MetricSpec, ...] = needing(
    "NVIDIA GPU",
    MetricSpec(
        "gpu_temperature_limit_celsius",
        "gauge",
        "celsius",
        _LIMIT,
        "Temperature limits of the board: slowdown (clocks fall), shutdown (the board turns itself "
        "off), core_max and memory_max (the highest it may work at). Boards that give them only "
        "as degrees left have gpu_temperature_margin_celsius instead.",
        "nvmlDeviceGetTemperatureThreshold",
    ),
    MetricSpec(
        "gpu_power_limit_range_watts",
        "gauge",
        "watts",
        _LIMIT,
        "Power limits: management (as set), default, and min and max of what can be set. The limit "
        "that holds in the end is gpu_power_limit_watts.",
        "nvmlDeviceGetPowerManagement{Limit,DefaultLimit,LimitConstraints}",
    ),
    MetricSpec(
        "gpu_persistence_mode",
        "gauge",
        "1",
        ("gpu", "uuid"),
        "1 if the driver keeps the GPU initialised while nobody uses it.",
        "nvmlDeviceGetPersistenceMode",
    ),
    MetricSpec(
        "gpu_ecc_mode",
        "gauge",
        "1",
        _MODE,
        "1 if the GPU's memory is protected by ECC; state pending: after the next reset.",
        "nvmlDeviceGetEccMode",
    ),
    MetricSpec(
        "gpu_mig_mode",
        "gauge",
        "1",
        _MODE,
        "1 if the GPU can be split into instances (MIG); state pending: after the next reset.",
        "nvmlDeviceGetMigMode",
    ),
)


@register(
    "gpu_settings",
    "limits of temperature and power, persistence, ECC and MIG mode (NVML)",
    process="driver",
    interval_seconds=60,
    topic="GPU, NVLink, PCIe",
    metrics=SPECS,
)
class GpuSettingsCollector:
    """Reads every GPU for itself, once a minute: settings change when a person changes them."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._nvml = shared_nvml(sources)
        self._max_values = config.node_config.max_values

    def follow(self, config: ExporterConfig) -> None:
        """Publish as many values as other settings say."""
        self._max_values = config.node_config.max_values

    def collect(self) -> Iterable[Family]:
        """Return the families of limits and modes.

        Raises
        ------
        NoData
            If the node has no GPU, or none answers.
        """
        temperature, power, persistence, ecc, mig = (family(spec.name) for spec in SPECS)
        answered = False
        # The main process, which asks none of these, need not load them.
        from peerwatch_exporter.sources.gpu.nvml_configuration import (  # noqa: PLC0415
            driver_configuration,
            gpu_configuration,
        )
        from peerwatch_exporter.sources.gpu.nvml_settings import read_settings  # noqa: PLC0415

        aspects: dict[str, dict[str, str | None]] = {}
        for gpu in self._nvml.gpus():
            try:
                settings = read_settings(gpu)
                configuration = gpu_configuration(gpu, settings)
            except GpuLostError:
                continue
            answered = True
            for aspect, text in configuration.items():
                aspects.setdefault(aspect, {})[gpu.labels[0]] = text
            for result, values in (
                (temperature, settings.temperature_limits_celsius),
                (power, settings.power_limits_watts),
                (ecc, settings.ecc),
                (mig, settings.mig),
            ):
                for name, value in values.items():
                    result.add_metric((*gpu.labels, name), value)
            if settings.persistence is not None:
                persistence.add_metric(gpu.labels, settings.persistence)
        if not answered:
            raise NoData("No GPU answers.")
        configured = self._configuration(driver_configuration(self._nvml), aspects)
        return temperature, power, persistence, ecc, mig, configured

    def _configuration(
        self, of_driver: Mapping[str, str | None], aspects: Mapping[str, Mapping[str, str | None]]
    ) -> Family:
        values = ConfigValues(self._max_values)
        for key, value in of_driver.items():
            values.add(key, value)
        for aspect, by_gpu in aspects.items():
            values.add_devices("gpu", aspect, by_gpu)
        # The collector node_config declares it; the driver process may not have imported that.
        result = NODE_CONFIG.family()
        result.rows += [(row, 1) for row in values.rows()]
        return result
