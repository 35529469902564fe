"""State, speed, errors and repairs of each NVLink, and of those to a Grace CPU, from NVML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.sources.gpu.nvml_access import GpuLostError, shared_nvml

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.gpu.nvml_gpu import Gpu
    from peerwatch_exporter.sources.gpu.readings import C2cLink, LinkReading

_LINK_LABELS = ("gpu", "uuid", "link")

SPECS: tuple[MetricSpec, ...] = (
    *needing(
        "NVLink",
        MetricSpec(
            "nvlink_up",
            "gauge",
            "1",
            _LINK_LABELS,
            "1 if the link is active.",
            "NVML_FI_DEV_NVLINK_GET_STATE (165), else nvmlDeviceGetNvLinkState",
        ),
        MetricSpec(
            "nvlink_speed_bytes_per_second",
            "gauge",
            "bytes per second",
            _LINK_LABELS,
            "Nominal speed of the link in one direction.",
            "NVML_FI_DEV_NVLINK_GET_SPEED (164)",
        ),
        MetricSpec(
            "nvlink_errors_total",
            "counter",
            "1",
            ("gpu", "uuid", "link", "type"),
            "Link errors by type. Hopper and older count replay, recovery and crc; Blackwell "
            "counts recovery, malformed, overrun, receive, receive_remote, receive_general, "
            "integrity, discard, effective and symbol.",
            "NVML_FI_DEV_NVLINK_ERROR_DL_* (161-163), NVLINK_COUNT_* (206-221)",
        ),
    ),
    MetricSpec(
        "nvlink_link_recoveries_total",
        "counter",
        "1",
        ("gpu", "uuid", "link", "result"),
        "How often the link was brought up again after an error, by result: successful or failed. "
        "One that fails again and again needs its connector or board checked.",
        "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_{SUCCESSFUL,FAILED}_EVENTS (213, 214)",
        "NVLink, Blackwell",
    ),
    MetricSpec(
        "nvlink_bit_error_ratio",
        "gauge",
        "ratio",
        ("gpu", "uuid", "link", "kind"),
        "Share of bits that arrive wrong: effective (after all repair) or symbol (after forward "
        "error correction). A link far above its peers is about to fail.",
        "NVML_FI_DEV_NVLINK_COUNT_{EFFECTIVE,SYMBOL}_BER (220, 222)",
        "NVLink, Blackwell",
    ),
    MetricSpec(
        "nvlink_fec_symbols_total",
        "counter",
        "1",
        ("gpu", "uuid", "link", "bin"),
        "Symbol errors that forward error correction repaired, by bin 0 to 15: the higher the "
        "bin, the nearer to what cannot be repaired. Published if nvlink.fec is set.",
        "NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_* (235-250)",
        "NVLink, Blackwell",
        not_drawn="16 bins a link, off by default; the bit error ratio is drawn",
    ),
    *needing(
        "NVLink-C2C",
        MetricSpec(
            "nvlink_c2c_up",
            "gauge",
            "1",
            _LINK_LABELS,
            "1 if this link between the GPU and the Grace CPU beside it is active. They carry all "
            "traffic between the two, and are no part of nvlink_up.",
            "NVML_FI_DEV_C2C_LINK_GET_STATUS (171)",
            not_drawn="beside a Grace CPU only, where a link that is down stops the whole board",
        ),
        MetricSpec(
            "nvlink_c2c_speed_bytes_per_second",
            "gauge",
            "bytes per second",
            _LINK_LABELS,
            "Nominal speed of the active link between the GPU and its Grace CPU in one direction.",
            "NVML_FI_DEV_C2C_LINK_GET_MAX_BW (172)",
            not_drawn="nominal; beside a Grace CPU only",
        ),
    ),
)


# Metrics with one more label, whose values are the keys of the reading.
_KEYED = {
    "nvlink_errors_total": "errors",
    "nvlink_link_recoveries_total": "recoveries",
    "nvlink_bit_error_ratio": "error_ratios",
    "nvlink_fec_symbols_total": "fec_symbols",
}
_Readings = list[tuple["Gpu", "Sequence[LinkReading]"]]
_C2cReadings = list[tuple["Gpu", "Sequence[C2cLink]"]]


@register(
    "nvlink_errors",
    "State, speed, errors by type and recoveries of each NVLink (NVML).",
    interval_seconds=10,
    process="driver",
    topic="GPU, NVLink, PCIe",
    metrics=SPECS,
)
class NvlinkErrorsCollector:
    """Publishes what the link generation counts, one series per link and type."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        # The main process, which makes none of these, need not load them.
        from peerwatch_exporter.sources.gpu.nvlink import NvlinkReader  # noqa: PLC0415
        from peerwatch_exporter.sources.gpu.nvlink_c2c import C2cReader  # noqa: PLC0415

        self._reader_of, self._c2c_reader_of = NvlinkReader, C2cReader
        self._per_link = config.nvlink.per_link
        self._fec = config.nvlink.fec
        self._nvml = shared_nvml(sources)
        self._readers: dict[int, NvlinkReader] = {}
        self._c2c_readers: dict[int, C2cReader] = {}

    def collect(self) -> Iterable[Family]:
        """Return the families of the links; none of them if they are switched off.

        Raises
        ------
        NoData
            If the node has no GPU, or none that answers has an NVLink.
        """
        if not self._per_link:
            return []
        gpus = self._nvml.gpus()
        readings = [(gpu, links) for gpu in gpus if (links := self._read(gpu))]
        c2c = [(gpu, found) for gpu in gpus if (found := self._read_c2c(gpu))]
        if not readings and not c2c:
            raise NoData("No GPU that answers has an NVLink.")
        return [
            *_states("nvlink", readings),
            *(_keyed(*item, readings) for item in _KEYED.items()),
            *_states("nvlink_c2c", c2c),
        ]

    def _read(self, gpu: Gpu) -> Sequence[LinkReading]:
        reader = self._readers.get(gpu.identity.index)
        if reader is None or reader.gpu is not gpu:
            reader = self._readers[gpu.identity.index] = self._reader_of(gpu, with_fec=self._fec)
        try:
            return reader.read_links()
        except GpuLostError:
            return ()

    def _read_c2c(self, gpu: Gpu) -> Sequence[C2cLink]:
        reader = self._c2c_readers.get(gpu.identity.index)
        if reader is None or reader.gpu is not gpu:
            reader = self._c2c_readers[gpu.identity.index] = self._c2c_reader_of(gpu)
        try:
            return reader.read()
        except GpuLostError:
            return ()


def _states(prefix: str, readings: _Readings | _C2cReadings) -> Iterable[Family]:
    up = family(f"{prefix}_up")
    speed = family(f"{prefix}_speed_bytes_per_second")
    for gpu, links in readings:
        for link in links:
            labels = (*gpu.labels, str(link.link))
            if link.up is not None:
                up.add_metric(labels, link.up)
            if link.speed_bytes_per_second is not None:
                speed.add_metric(labels, link.speed_bytes_per_second)
    return up, speed


def _keyed(name: str, attribute: str, readings: _Readings) -> Family:
    result = family(name)
    for gpu, links in readings:
        for link in links:
            labels = (*gpu.labels, str(link.link))
            for key, value in getattr(link, attribute).items():
                result.add_metric((*labels, key), value)
    return result
