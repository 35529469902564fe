"""Where the seconds of a step go: what each rank spent in which segment."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData, PartialData

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.spans.ring import SpanHeader

_RANK_LABELS = ("job_id", "rank")
_SEGMENT_LABELS = (*_RANK_LABELS, "segment")
_UNDRAWN = "for queries; the command timeline draws single spans"
# A GPU works on some segment at any time; one that it does not leave is worth a series.
PENDING_SECONDS = 5.0

SPECS: tuple[MetricSpec, ...] = needing(
    "spans",
    MetricSpec(
        "span_seconds_total",
        "counter",
        "seconds",
        _SEGMENT_LABELS,
        "Time the rank spent in a segment of its steps: step (all of it), data, forward, backward, "
        "optimizer, checkpoint, gc, collective, or one that the program names.",
        "rank-<rank>.spans: totals",
    ),
    MetricSpec(
        "span_count_total",
        "counter",
        "1",
        _SEGMENT_LABELS,
        "How often the rank was in a segment of its steps.",
        "rank-<rank>.spans: totals",
        not_drawn=_UNDRAWN,
    ),
    MetricSpec(
        "span_dropped_total",
        "counter",
        "1",
        _RANK_LABELS,
        "Spans that are neither in the totals nor in the ring: too many segments of the program's "
        "own, or too much for the GPU's events.",
        "rank-<rank>.spans: dropped",
        not_drawn=_UNDRAWN,
    ),
    MetricSpec(
        "span_gpu_pending_seconds",
        "gauge",
        "seconds",
        _SEGMENT_LABELS,
        "For how long the GPU has not finished the oldest segment that was given to it; only from "
        "5 s on.",
        "rank-<rank>.spans: gpu_since_ns",
        not_drawn=_UNDRAWN,
    ),
    MetricSpec(
        "rank_clock_offset_seconds",
        "gauge",
        "seconds",
        _RANK_LABELS,
        "By how much the clock of the rank's host is ahead of that of rank 0's host.",
        "rank-<rank>.spans: clock_offset_ns, clock_drift",
        not_drawn=_UNDRAWN,
    ),
)


class _GarbledSpans(PartialData):
    error_class = "garbled_spans"


@register(
    "spans",
    "where the seconds of a step go: segments of each rank, clocks of their hosts",
    topic="Training jobs and ranks",
    metrics=SPECS,
    is_configured=lambda config: config.heartbeat.directory is not None,
)
class SpansCollector:
    """Publishes the totals that ranks keep in their files of spans."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        # A node without a directory for ranks need not load it.
        from peerwatch_exporter.sources.spans.files import read_span_files  # noqa: PLC0415

        self._read = read_span_files
        self._heartbeat = config.heartbeat
        self._known = sources.known_ranks
        self._clock = sources.clock

    def collect(self) -> Iterator[Family]:
        """Yield the families of ``span_*``, and ``rank_clock_offset_seconds``.

        Raises
        ------
        NoData
            If no rank keeps spans.
        PartialData
            At the end, if some files could not be read.
        """
        if self._heartbeat.directory is None:
            raise NoData("heartbeat.directory is not set.")
        found = self._read(self._heartbeat.directory)
        oldest = self._clock() - self._heartbeat.forget_after_seconds
        headers = [header for _, header in found.ranks if header.updated >= oldest]
        if not headers and not found.problems:
            raise NoData(f"No rank keeps spans in {self._heartbeat.directory}.")
        families = {spec.name: family(spec.name) for spec in SPECS}
        for header in headers:
            named = header
            if not header.job_id:
                named = replace(header, job_id=self._known.job_id(header.pid))
            self._add(families, named)
        yield from (family for family in families.values() if family.rows)
        if found.problems:
            raise _GarbledSpans("; ".join(found.problems))

    def _add(self, families: dict[str, Family], header: SpanHeader) -> None:
        labels = header.job_id, str(header.rank)
        for total in header.totals:
            named = *labels, total.segment
            families["span_seconds_total"].add_metric(named, total.seconds)
            families["span_count_total"].add_metric(named, total.count)
        families["span_dropped_total"].add_metric(labels, header.dropped)
        now = self._clock()
        if header.gpu_segment is not None and header.gpu_since is not None:
            age = now - header.gpu_since
            if age >= PENDING_SECONDS:
                named = *labels, header.gpu_segment
                families["span_gpu_pending_seconds"].add_metric(named, age)
        if header.clock is not None:
            families["rank_clock_offset_seconds"].add_metric(labels, header.clock.at(now))
