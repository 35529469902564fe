"""Power and utilisation of GPUs within the last seconds, from the driver's own samples."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.sources.gpu.nvml_access import GpuLostError, shared_nvml

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from peerwatch_exporter.sampler.window import Window
    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.gpu.facts import SampleBatch
    from peerwatch_exporter.sources.gpu.nvml_gpu import Gpu
    from peerwatch_exporter.sources.gpu.nvml_samples import SampledQuantity

_STATISTIC = (
    "statistic: max, p99 (99 % of the samples were not above it) or mean of the last "
    "sampler.window_seconds."
)

SPECS = (
    MetricSpec(
        "gpu_burst_power_watts",
        "gauge",
        "watts",
        ("gpu", "uuid", "statistic"),
        f"Power drawn, from the samples that the driver takes by itself; {_STATISTIC}",
        "nvmlDeviceGetSamples NVML_TOTAL_POWER_SAMPLES",
        "NVIDIA GPU, no MIG",
    ),
    MetricSpec(
        "gpu_burst_utilization_ratio",
        "gauge",
        "ratio",
        ("gpu", "uuid", "statistic"),
        f"Part of the time with a kernel running, from the driver's own samples; {_STATISTIC}",
        "nvmlDeviceGetSamples NVML_GPU_UTILIZATION_SAMPLES",
        "NVIDIA GPU, no MIG",
    ),
)


# The driver samples some 100 times a second; none is known to be faster than this.
_MOST_PER_SECOND = 500


@register(
    "gpu_samples",
    "GPU power and utilisation within the last seconds, if the sampler is on (NVML).",
    process="driver",
    is_configured=lambda config: config.sampler.interval_milliseconds is not None,
    topic="Millisecond sampling",
    metrics=SPECS,
)
class GpuSamplesCollector:
    """Keeps a window of samples per GPU, and hands each sample on for ``/burst``."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        from peerwatch_exporter.sampler.window import Window  # noqa: PLC0415

        # It imports pynvml, which the main process must not.
        from peerwatch_exporter.sources.gpu.nvml_samples import (  # noqa: PLC0415
            QUANTITIES,
            SampleReader,
        )

        self._window_of = Window
        self._quantities = QUANTITIES
        self._enabled = config.sampler.interval_milliseconds is not None
        self._seconds = config.sampler.window_seconds
        self._facts = sources.gpus
        self._nvml = shared_nvml(sources)
        self._reader = SampleReader()
        self._windows: dict[tuple[str, str], Window] = {}
        self._last: dict[tuple[str, str], float] = {}

    def collect(self) -> Iterable[Family]:
        """Return the statistics of the window.

        Raises
        ------
        NoData
            If the sampler is off, or no GPU that answers has samples.
        """
        if not self._enabled:
            raise NoData("The sampler is off.")
        gpus = self._nvml.gpus()
        self._keep_only({gpu.identity.key for gpu in gpus})
        batches: list[SampleBatch] = []
        families = []
        for quantity in self._quantities:
            item = family(quantity.metric)
            for gpu in gpus:
                self._collect(gpu, quantity, item, batches)
            families.append(item)
        self._facts.add_samples(batches)
        if not self._windows:
            raise NoData("No GPU that answers keeps samples; under MIG none does.")
        return families

    def _collect(
        self, gpu: Gpu, quantity: SampledQuantity, item: Family, batches: list[SampleBatch]
    ) -> None:
        try:
            samples = self._reader.read(gpu, quantity)
        except GpuLostError:
            return
        key = (gpu.identity.key, quantity.metric)
        if samples is None and key not in self._windows:
            return
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = self._window_of(
                self._seconds, self._seconds * _MOST_PER_SECOND
            )
        self._add(key, window, samples or [])
        if samples:
            times = [time for time, _ in samples]
            values = [value for _, value in samples]
            batches.append((*gpu.labels, quantity.metric, times, values))
        statistics = window.statistics()
        if statistics is not None:
            item.add_metric((*gpu.labels, "max"), statistics.maximum)
            item.add_metric((*gpu.labels, "p99"), statistics.p99)
            item.add_metric((*gpu.labels, "mean"), statistics.mean)

    def _add(
        self, key: tuple[str, str], window: Window, samples: Sequence[tuple[float, float]]
    ) -> None:
        if not samples:
            window.add_values((), ())
            return
        times = [time for time, _ in samples]
        usual = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 1.0
        before = self._last.get(key, times[0] - usual)
        # A value stands for the time since the one before, but not for a pause of the buffer.
        seconds = [min(1.0, later - earlier) for earlier, later in pairwise([before, *times])]
        window.add_values([value for _, value in samples], seconds)
        self._last[key] = times[-1]

    def _keep_only(self, uuids: set[str]) -> None:
        for key in [key for key in self._windows if key[0] not in uuids]:
            del self._windows[key]
            self._last.pop(key, None)
