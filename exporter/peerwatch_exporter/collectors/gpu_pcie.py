"""The GPUs' own PCIe links, from NVML: bytes, generation, width, replays and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.sources.gpu.nvml_access import GpuLostError, shared_nvml

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.gpu.nvml_gpu import Gpu
    from peerwatch_exporter.sources.gpu.readings import PcieBytes, PcieLink

_GPU_LABELS = ("gpu", "uuid")
# Links change their generation with the load and their errors are few: no need of every second, but
# of a new value for each scrape of 15 s.
_LINK_SECONDS = 10.0

SPECS = needing(
    "NVIDIA GPU",
    MetricSpec(
        "gpu_pcie_errors_total",
        "counter",
        "1",
        ("gpu", "uuid", "type"),
        "Errors on the GPU's PCIe link by type: correctable, receiver, bad_tlp, bad_dllp, lcrc, "
        "lane, naks_sent, naks_received, replay_rollover, l0_to_recovery, unsupported_request, "
        "non_fatal and fatal. Correctable ones that keep rising announce a bad slot or riser.",
        "NVML_FI_DEV_PCIE_* (95, 169, 173-183)",
        every_seconds=_LINK_SECONDS,
    ),
    MetricSpec(
        "gpu_pcie_transmit_bytes_total",
        "counter",
        "bytes",
        _GPU_LABELS,
        "Bytes that the GPU sent over PCIe. The driver's counter may wrap; wraps are added up.",
        "NVML_FI_DEV_PCIE_COUNT_TX_BYTES (197)",
    ),
    MetricSpec(
        "gpu_pcie_receive_bytes_total",
        "counter",
        "bytes",
        _GPU_LABELS,
        "Bytes that the GPU received over PCIe. The driver's counter may wrap; wraps are added up.",
        "NVML_FI_DEV_PCIE_COUNT_RX_BYTES (198)",
    ),
    MetricSpec(
        "gpu_pcie_link_generation",
        "gauge",
        "1",
        _GPU_LABELS,
        "PCIe generation of the link now. An idle GPU lowers it: compare only under load.",
        "nvmlDeviceGetCurrPcieLinkGeneration",
        every_seconds=_LINK_SECONDS,
    ),
    MetricSpec(
        "gpu_pcie_link_generation_max",
        "gauge",
        "1",
        _GPU_LABELS,
        "Highest PCIe generation that GPU and slot allow together.",
        "nvmlDeviceGetMaxPcieLinkGeneration",
        every_seconds=_LINK_SECONDS,
    ),
    MetricSpec(
        "gpu_pcie_link_width_lanes",
        "gauge",
        "lanes",
        _GPU_LABELS,
        "PCIe lanes in use now; fewer than the maximum under load: the link is degraded.",
        "nvmlDeviceGetCurrPcieLinkWidth",
        every_seconds=_LINK_SECONDS,
    ),
    MetricSpec(
        "gpu_pcie_link_width_lanes_max",
        "gauge",
        "lanes",
        _GPU_LABELS,
        "PCIe lanes that GPU and slot allow together.",
        "nvmlDeviceGetMaxPcieLinkWidth",
        every_seconds=_LINK_SECONDS,
    ),
    MetricSpec(
        "gpu_pcie_replays_total",
        "counter",
        "1",
        _GPU_LABELS,
        "PCIe packets sent again after an error on the link: nothing is lost but time; many mean "
        "a bad contact or riser.",
        "NVML_FI_DEV_PCIE_REPLAY_COUNTER (94), else nvmlDeviceGetPcieReplayCounter",
        every_seconds=_LINK_SECONDS,
    ),
)


_LINK_VALUES = {
    "gpu_pcie_link_generation": "generation",
    "gpu_pcie_link_generation_max": "generation_max",
    "gpu_pcie_link_width_lanes": "width_lanes",
    "gpu_pcie_link_width_lanes_max": "width_lanes_max",
    "gpu_pcie_replays_total": "replays",
}


class UnwrappedCounter:
    """A counter that only rises, from a raw one that may wrap.

    NVML says that fields 197 and 198 "can be wrapped" and not at which width. Assumed: a raw
    value that falls wrapped at 32 bits if it was below 2**32 before, else at 64 bits. A wrap
    that would mean more than half of that range in one interval is taken for a counter that
    started again at 0, as after a reload of the driver.
    """

    def __init__(self) -> None:
        self._last: int | None = None
        self._total = 0

    def add(self, raw: int) -> int:
        """Take the next raw value; return the total, which starts at the first raw value."""
        last = self._last
        self._last = raw
        if last is None or raw >= last:
            self._total += raw - (last or 0)
            return self._total
        span = 2**32 if last < 2**32 else 2**64
        wrapped = raw + span - last
        self._total += wrapped if wrapped <= span // 2 else raw
        return self._total


@register(
    "gpu_pcie",
    "PCIe bytes, link width and speed, replays and errors of the GPUs (NVML).",
    process="driver",
    topic="GPU, NVLink, PCIe",
    metrics=SPECS,
)
class GpuPcieCollector:
    """Reads every GPU for itself: a lost one costs only its own values."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:  # noqa: ARG002
        # The main process, which makes none of these, need not load it.
        from peerwatch_exporter.sources.gpu.nvml_pcie import (  # noqa: PLC0415
            read_bytes,
            read_link,
        )

        self._read_bytes, self._read_link = read_bytes, read_link
        self._nvml = shared_nvml(sources)
        self._monotonic = sources.monotonic
        self._counters: dict[tuple[str, str], UnwrappedCounter] = {}
        self._links: dict[tuple[str, str], PcieLink] = {}
        self._links_at: float | None = None
        self._shown: dict[tuple[str, str], PcieLink] = {}
        self._link_families: tuple[Family, ...] = ()

    def collect(self) -> Iterable[Family]:
        """Return the PCIe families.

        Raises
        ------
        NoData
            If the node has no GPU, or none answers.
        """
        now = self._monotonic()
        if self._links_at is None or now - self._links_at >= _LINK_SECONDS:
            self._links_at = now
            self._links = {}
        readings = [(gpu, found) for gpu in self._nvml.gpus() if (found := self._read(gpu))]
        if not readings:
            raise NoData("No GPU answers.")
        # A GPU that is lost now must not show what it said before. Links are the same objects until
        # they are read again.
        links = {gpu.labels: self._links[gpu.labels] for gpu, _ in readings}
        if links != self._shown:
            self._shown, self._link_families = links, tuple(_link_families(links))
        return [*self._bytes(readings), *self._link_families]

    def _read(self, gpu: Gpu) -> PcieBytes | None:
        try:
            found = self._read_bytes(gpu)
            if gpu.labels not in self._links:
                self._links[gpu.labels] = self._read_link(gpu)
        except GpuLostError:
            return None
        return found

    def _bytes(self, readings: Iterable[tuple[Gpu, PcieBytes]]) -> Iterable[Family]:
        families = {
            "transmit": family("gpu_pcie_transmit_bytes_total"),
            "receive": family("gpu_pcie_receive_bytes_total"),
        }
        supported = family("exporter_source_supported")
        for gpu, reading in readings:
            for direction, result in families.items():
                raw = getattr(reading, direction)
                if raw is not None:
                    key = (gpu.identity.key, direction)
                    counter = self._counters.setdefault(key, UnwrappedCounter())
                    result.add_metric(gpu.labels, counter.add(int(raw)))
            supported.add_metric(("pcie_bytes", gpu.labels[0]), reading.transmit is not None)
        return *families.values(), supported


def _link_families(links: dict[tuple[str, str], PcieLink]) -> Iterable[Family]:
    for name, attribute in _LINK_VALUES.items():
        result = family(name)
        for labels, link in links.items():
            value = getattr(link, attribute)
            if value is not None:
                result.add_metric(labels, value)
        yield result
    errors = family("gpu_pcie_errors_total")
    for labels, link in links.items():
        for kind, count in link.errors.items():
            errors.add_metric((*labels, kind), count)
    yield errors
