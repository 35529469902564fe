"""Bytes over the NVLinks of a GPU, from NVML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.collector import register
from peerwatch_exporter.sources.gpu.nvml_access import GpuLostError, shared_nvml

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.gpu.nvml_gpu import Gpu
    from peerwatch_exporter.sources.gpu.readings import NvlinkBytes

_GPU_LABELS = ("gpu", "uuid")

SPECS: tuple[MetricSpec, ...] = (
    *needing(
        "NVLink",
        MetricSpec(
            "nvlink_transmit_bytes_total",
            "counter",
            "bytes",
            _GPU_LABELS,
            "Payload sent over all NVLinks of the GPU.",
            "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX (138), else NVLINK_COUNT_XMIT_BYTES (202)",
        ),
        MetricSpec(
            "nvlink_receive_bytes_total",
            "counter",
            "bytes",
            _GPU_LABELS,
            "Payload received over all NVLinks of the GPU.",
            "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX (139), else NVLINK_COUNT_RCV_BYTES (204)",
        ),
    ),
    MetricSpec(
        "nvlink_raw_transmit_bytes_total",
        "counter",
        "bytes",
        _GPU_LABELS,
        "Sent over all NVLinks of the GPU, with what the protocol adds to the payload.",
        "NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_TX (140)",
        "NVLink, Ampere to Hopper",
    ),
    MetricSpec(
        "nvlink_raw_receive_bytes_total",
        "counter",
        "bytes",
        _GPU_LABELS,
        "Received over all NVLinks of the GPU, with what the protocol adds to the payload.",
        "NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_RX (141)",
        "NVLink, Ampere to Hopper",
    ),
)

_VALUES = {
    "nvlink_transmit_bytes_total": "transmit",
    "nvlink_receive_bytes_total": "receive",
    "nvlink_raw_transmit_bytes_total": "raw_transmit",
    "nvlink_raw_receive_bytes_total": "raw_receive",
}


@register(
    "nvlink",
    "Bytes over the NVLinks of each GPU (NVML).",
    process="driver",
    topic="GPU, NVLink, PCIe",
    metrics=SPECS,
)
class NvlinkCollector:
    """Publishes true byte counters, whatever the link generation calls them."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:  # noqa: ARG002
        # The main process, which makes none of these, need not load it.
        from peerwatch_exporter.sources.gpu.nvlink import NvlinkReader  # noqa: PLC0415

        self._reader_of = NvlinkReader
        self._nvml = shared_nvml(sources)
        self._readers: dict[int, NvlinkReader] = {}

    def collect(self) -> Iterable[Family]:
        """Return the byte counters.

        Raises
        ------
        NoData
            If the node has no GPU.
        """
        families = {attribute: family(name) for name, attribute in _VALUES.items()}
        supported = family("exporter_source_supported")
        for gpu in self._nvml.gpus():
            reading = self._read(gpu)
            if reading is None:
                continue
            for attribute, result in families.items():
                value = getattr(reading, attribute)
                if value is not None:
                    result.add_metric(gpu.labels, value)
            supported.add_metric(("nvlink_bytes", gpu.labels[0]), reading.transmit is not None)
        return [*families.values(), supported]

    def _read(self, gpu: Gpu) -> NvlinkBytes | None:
        reader = self._readers.get(gpu.identity.index)
        if reader is None or reader.gpu is not gpu:
            # Listed anew: the driver may have started its counters again.
            reader = self._readers[gpu.identity.index] = self._reader_of(gpu)
        try:
            return reader.read_bytes()
        except GpuLostError:
            return None
