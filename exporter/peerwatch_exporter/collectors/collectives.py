"""What ranks do in collectives: launched, completed, in flight, how long, how much, how late.

Read from torch's Flight Recorder through the socket that the hook serves, from counters that a
communication library writes itself, and from NCCL's RAS and Inspector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData, raise_partial

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.collectives.recorders import Readings
    from peerwatch_exporter.sources.collectives.telemetry import GroupTelemetry, RankReport

_RANK = ("job_id", "rank")
_GROUP = (*_RANK, "group")
_KIND = (*_GROUP, "collective")
_RECORDER = "torch Flight Recorder"
_FOR_DIAGNOSIS = "the detector's diagnosis reads it"

SPECS: tuple[MetricSpec, ...] = needing(
    "collectives",
    MetricSpec(
        "collective_launched_total",
        "counter",
        "1",
        _KIND,
        "Collectives, sends and receives that the rank has launched, since the exporter first saw "
        "it.",
        f"{_RECORDER}: entries, collective_seq_id",
    ),
    MetricSpec(
        "collective_completed_total",
        "counter",
        "1",
        _KIND,
        "Those of them that have completed on this rank.",
        f"{_RECORDER}: state, retired, pg_status last_completed_collective",
    ),
    MetricSpec(
        "collective_duration_seconds_total",
        "counter",
        "seconds",
        _KIND,
        "Duration of the completed ones, where the back end measures it (NCCL).",
        f"{_RECORDER}: duration_ms, else time_discovered_completed_ns - ..started_ns",
    ),
    MetricSpec(
        "collective_bytes_total",
        "counter",
        "bytes",
        _KIND,
        "Size of the completed ones: of the larger of input and output buffer.",
        f"{_RECORDER}: input_sizes, output_sizes and their types",
    ),
    MetricSpec(
        "collective_bus_bytes_total",
        "counter",
        "bytes",
        _KIND,
        "The same times the bus factor of nccl-tests (2(n-1)/n for all_reduce): per second of "
        "duration it is the bus bandwidth.",
        f"{_RECORDER}: sizes; number of ranks of the group",
        not_drawn=_FOR_DIAGNOSIS,
    ),
    MetricSpec(
        "collective_last_sequence",
        "gauge",
        "1",
        (*_GROUP, "state"),
        "Sequence number of the group's newest collective that the rank has launched, started, "
        "completed; a state that the source does not know is missing.",
        f"{_RECORDER}: pg_status",
    ),
    MetricSpec(
        "collective_in_flight_seconds",
        "gauge",
        "seconds",
        _GROUP,
        "Age of the oldest collective that is launched and not completed; 0 if none is.",
        f"{_RECORDER}: time_created_ns",
    ),
    MetricSpec(
        "collective_in_flight_info",
        "gauge",
        "1",
        (*_KIND, "input", "output", "dtype"),
        "Sequence number of a collective that has been in flight for 5 s or longer, with the "
        "sizes of its tensors and their type.",
        f"{_RECORDER}: entries",
        not_drawn=_FOR_DIAGNOSIS,
    ),
    MetricSpec(
        "collective_group_info",
        "gauge",
        "1",
        ("job_id", "group", "description", "members"),
        "1 for each process group of the ranks on this node; members are ranges of ranks: 0-3,8, "
        "and 0-28:4 for every fourth.",
        "rank-<rank>.groups.json of the hook: torch.distributed's groups",
        not_drawn=_FOR_DIAGNOSIS,
    ),
    MetricSpec(
        "collective_block_sequence",
        "gauge",
        "1",
        _GROUP,
        "Sequence number after the newest finished block of collectives.",
        f"{_RECORDER}: collective_seq_id",
        not_drawn=_FOR_DIAGNOSIS,
    ),
    MetricSpec(
        "collective_block_collectives",
        "gauge",
        "1",
        _GROUP,
        "Number of collectives in that block: the power of two that takes 15 s or longer.",
        f"{_RECORDER}: collective_seq_id",
        not_drawn=_FOR_DIAGNOSIS,
    ),
    MetricSpec(
        "collective_block_arrival_timestamp_seconds",
        "gauge",
        "seconds",
        _GROUP,
        "Mean time at which the rank launched the collectives of that block (Unix time by the "
        "host's clock); comparable between ranks with the same block.",
        f"{_RECORDER}: time_created_ns",
        not_drawn=_FOR_DIAGNOSIS,
    ),
    MetricSpec(
        "collective_work_requests_total",
        "counter",
        "1",
        (*_GROUP, "state"),
        "Work requests of the network that the rank has posted, and those that have completed.",
        "rank-<rank>.counters.json: work_requests",
        not_drawn=_FOR_DIAGNOSIS,
    ),
    MetricSpec(
        "collective_source_up",
        "gauge",
        "1",
        (*_RANK, "source"),
        "1 if the source of the rank's collectives answered, 0 if it did not: then the rank's "
        "other series of collectives are missing.",
        "flight_recorder: socket rank-<rank>.sock; counters: rank-<rank>.counters.json; ras: NCCL",
        not_drawn=_FOR_DIAGNOSIS,
    ),
)

# Shorter ones come and go in every step: each would be a series of its own. Chosen above the 3 s
# between two readings of torch's recorder.
IN_FLIGHT_INFO_SECONDS = 5.0
_STATES = ("launched", "started", "completed")


@register(
    "collectives",
    "collectives of ranks by process group: launched, completed, in flight, bytes, lateness",
    topic="Collectives",
    metrics=SPECS,
    is_configured=lambda config: (
        config.heartbeat.directory is not None
        or config.collectives.ras_address is not None
        or config.collectives.inspector_directory is not None
    ),
)
class CollectivesCollector:
    """Publishes the newest reading of each rank; the reading itself happens in other threads."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        # Twenty modules, which a node without such ranks need not load.
        from peerwatch_exporter.sources.collectives.all_sources import (  # noqa: PLC0415
            CollectiveSources,
            merged,
        )

        self._sources = CollectiveSources(config, sources)
        self._merged = merged

    def collect(self) -> Iterator[Family]:
        """Yield the families of ``collective_*``.

        Raises
        ------
        NoData
            If no rank reports its collectives.
        PartialData
            At the end, if some ranks could not be read.
        """
        readings = self._sources.read()
        if not readings.reports and not readings.problems:
            raise NoData("No rank on this node reports its collectives.")
        yield from _families(readings, self._merged(readings.reports))
        raise_partial(readings.problems, found=True)

    def close(self) -> None:
        """End the readers."""
        self._sources.close()


def _families(readings: Readings, merged: Iterable[RankReport]) -> Iterator[Family]:
    families = {spec.name: family(spec.name) for spec in SPECS}
    for job_id, rank, source, up, _, _ in readings.reports:
        if up is not None:
            row = (job_id, str(rank), source), float(up)
            families["collective_source_up"].rows.append(row)
    for report in merged:
        for group in report.groups:
            labels = report.job_id, str(report.rank), group.group
            _add_group(families, labels, group, report.time)
    families["collective_group_info"].rows.extend(
        ((job_id, name, info.description, info.members), 1.0)
        for job_id, infos in readings.infos.items()
        for name, info in sorted(infos.items())
        if info.members
    )
    yield from (each for each in families.values() if each.rows)


def _add_group(
    families: dict[str, Family], labels: tuple[str, ...], group: GroupTelemetry, time: float
) -> None:
    def add(name: str, value: float | None, *more: str) -> None:
        if value is not None:
            families[f"collective_{name}"].rows.append(((*labels, *more), value))

    for collective, totals in group.totals.items():
        add("launched_total", totals.launched, collective)
        add("completed_total", totals.completed, collective)
        add("duration_seconds_total", totals.seconds, collective)
        add("bytes_total", totals.size, collective)
        add("bus_bytes_total", totals.bus, collective)
    for state in _STATES:
        add("last_sequence", getattr(group, state), state)
    flight = group.in_flight
    if group.completed is not None:
        age = 0.0 if flight is None else max(0.0, time - flight.launched)
        add("in_flight_seconds", age)
        if flight is not None and flight.sequence is not None and age >= IN_FLIGHT_INFO_SECONDS:
            text = flight.collective, flight.input, flight.output, flight.dtype
            add("in_flight_info", flight.sequence, *text)
    for state, requests in zip(("posted", "completed"), group.work_requests or (), strict=False):
        add("work_requests_total", requests, state)
    if group.block is not None:
        add("block_sequence", group.block.end)
        add("block_collectives", group.block.collectives)
        add("block_arrival_timestamp_seconds", group.block.arrival)
