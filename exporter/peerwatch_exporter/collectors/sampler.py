"""What the sampler saw within the last seconds: the largest rates, not only their mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.sampler.layout import MemoryLimitError
from peerwatch_exporter.sampler.process import SamplerEndedError, SamplerStuckError, sampler_of
from peerwatch_exporter.sampler.window import Statistics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_common.metrics.spec import Family
    from peerwatch_exporter.sampler.layout import Series
    from peerwatch_exporter.sampler.process import SamplerState
    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

# Key of the process's message by metric.
_OWN = {
    "sampler_interval_seconds": "interval",
    "sampler_interval_stretched": "stretched",
    "sampler_samples_total": "samples",
    "sampler_late_samples_total": "late",
    "sampler_cpu_ratio": "cpu",
    "sampler_missing_series": "missing",
}


@register(
    "sampler",
    "Bursts within the last seconds, if the sampler is on (RDMA ports).",
    wanted=lambda config: config.sampler.interval_milliseconds is not None,
)
class SamplerCollector:
    """Copies the numbers that the sampler process worked out; it reads nothing itself."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:  # noqa: ARG002
        self._sources = sources

    def collect(self) -> Iterable[Family]:
        """Return the statistics of the sampler's window, and how the sampler fares.

        Raises
        ------
        NoData
            If the sampler is off.
        PartialData
            If it does not sample, ends again and again, or has not spoken for seconds.
        """
        sampler = sampler_of(self._sources)
        if sampler is None or sampler.settings is None:
            raise NoData("The sampler is off.")
        state = sampler.state()
        yield from _own(state)
        if state.refused is not None:
            raise PartialData("The sampler does not run.") from MemoryLimitError(state.refused)
        if state.silent_seconds:
            text = f"The sampler has been silent for {state.silent_seconds:.0f} s."
            raise PartialData("There are no statistics.") from SamplerStuckError(text)
        if state.restarts and state.second is None:
            text = f"The sampler ended {state.restarts} times; the log says why."
            raise PartialData("There are no statistics.") from SamplerEndedError(text)
        yield from _statistics(state)


def _own(state: SamplerState) -> Iterable[Family]:
    """Return how the sampler fares."""
    for name, value in (
        ("sampler_stuck_seconds", state.silent_seconds),
        ("sampler_restarts_total", state.restarts),
        ("sampler_series", sum(len(group.series) for group in state.layout.groups)),
    ):
        item = family(name)
        item.add_metric([], value)
        yield item
    second = state.second
    if second is None:
        return
    for name, key in _OWN.items():
        item = family(name)
        item.add_metric([], second[key])
        yield item
    window = family("sampler_window_seconds")
    window.add_metric([], (second["end"] - second["begin"]) / 1e9)
    yield window


def _statistics(state: SamplerState) -> Iterable[Family]:
    if state.second is None:
        return ()
    families: dict[str, Family] = {}
    series = [item for group in state.layout.groups for item in group.series]
    for item, values in zip(series, state.second["statistics"], strict=True):
        if values is not None:
            _add(families, item, Statistics(*values))
    return families.values()


def _add(families: dict[str, Family], series: Series, statistics: Statistics) -> None:
    counter, port = series.counter, (series.device, series.port)
    direction = (counter.direction,) if counter.direction else ()
    rates = families.setdefault(counter.family, family(counter.family))
    for name, value in (
        ("max", statistics.maximum),
        ("p99", statistics.p99),
        ("mean", statistics.mean),
    ):
        rates.add_metric((*port, *direction, name), value)

    def add(name: str, label: str, value: float) -> None:
        item = families.setdefault(name, family(name))
        item.add_metric((*port, label), value)

    if series.line_rate is not None:
        add("nic_burst_line_rate_ratio", counter.link, statistics.line_ratio)
    if counter.is_event:
        add("nic_burst_active_ratio", counter.name, statistics.active_ratio)
    if statistics.update_seconds:
        add("nic_burst_update_interval_seconds", counter.name, statistics.update_seconds)
