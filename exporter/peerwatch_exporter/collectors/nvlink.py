"""NVLink bytes, state, speed and errors, from NVML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import NoData, register
from peerwatch_exporter.sources.nvml import GpuLostError, shared_nvml

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from peerwatch_exporter.catalog import Family
    from peerwatch_exporter.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.nvml import Gpu
    from peerwatch_exporter.sources.readings import NvlinkReading


@register("nvlink", "NVLink bytes, link state, speed and errors by type (NVML).")
class NvlinkCollector:
    """Publishes true byte counters, and the errors that the link generation counts."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._per_link = config.nvlink.per_link
        self._nvml = shared_nvml(sources)

    def collect(self) -> Iterable[Family]:
        """Return the NVLink families.

        Raises
        ------
        NoData
            If no GPU answers, or none has an NVLink.
        """
        readings = [
            (gpu, reading) for gpu in self._nvml.gpus() if (reading := _read(gpu)) is not None
        ]
        if not readings:
            raise NoData("No GPU that answers has an NVLink.")
        families = list(_totals(readings))
        if self._per_link:
            families += _links(readings)
        return families


def _read(gpu: Gpu) -> NvlinkReading | None:
    try:
        return gpu.nvlink()
    except GpuLostError:
        return None


def _totals(readings: Sequence[tuple[Gpu, NvlinkReading]]) -> Iterable[Family]:
    transmit = family("nvlink_transmit_bytes_total")
    receive = family("nvlink_receive_bytes_total")
    for gpu, reading in readings:
        if reading.transmit_bytes is not None:
            transmit.add_metric(gpu.labels, reading.transmit_bytes)
        if reading.receive_bytes is not None:
            receive.add_metric(gpu.labels, reading.receive_bytes)
    return transmit, receive


def _links(readings: Sequence[tuple[Gpu, NvlinkReading]]) -> Iterable[Family]:
    up = family("nvlink_up")
    speed = family("nvlink_speed_bytes_per_second")
    errors = family("nvlink_errors_total")
    for gpu, reading in readings:
        for link in reading.links:
            labels = [*gpu.labels, str(link.link)]
            if link.up is not None:
                up.add_metric(labels, link.up)
            if link.speed_bytes_per_second is not None:
                speed.add_metric(labels, link.speed_bytes_per_second)
            for kind, count in link.errors.items():
                errors.add_metric([*labels, kind], count)
    return up, speed, errors
