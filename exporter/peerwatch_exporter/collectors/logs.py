"""Errors in the logs of jobs and of the kernel, by class and signature; who complains about whom.

The reading itself happens in a process of its own; this publishes what it last reported.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_common.signatures.signature import EventClass
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.sources.logs.agreed import LogSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.host.access import Paths
    from peerwatch_exporter.sources.logs.process import LogState
    from peerwatch_exporter.sources.logs.targets import Targets
    from peerwatch_exporter.sources.logs.totals import LogTotals

_RANK = ("job_id", "rank")
_EVENT = (*_RANK, "class", "signature")
_LOGS = "logs of jobs, kernel log"
_FOR_DIAGNOSIS = "the detector's diagnosis reads it"
_CLASSES = (
    "class: H node, N network, D symptom of another rank's fault, S storage, U user's program, "
    "P platform, X noise."
)

SPECS: tuple[MetricSpec, ...] = needing(
    "logs",
    MetricSpec(
        "log_class_events_total",
        "counter",
        "1",
        (*_RANK, "class"),
        f"Lines that a signature matched, by class, each from 0 for every rank here; {_CLASSES} "
        "rank is empty for lines that name none, job_id for the kernel log.",
        _LOGS,
    ),
    MetricSpec(
        "log_events_total",
        "counter",
        "1",
        _EVENT,
        "Lines that a signature matched; a series begins with its first line. Beyond "
        "logs.max_series rank and signature are other.",
        _LOGS,
        not_drawn=_FOR_DIAGNOSIS,
    ),
    MetricSpec(
        "log_event_last_timestamp_seconds",
        "gauge",
        "seconds",
        _EVENT,
        "When the last of these lines was written (Unix time): as it says itself if that agrees "
        "with the time of reading, which counts otherwise.",
        _LOGS,
        not_drawn=_FOR_DIAGNOSIS,
    ),
    MetricSpec(
        "log_first_error_timestamp_seconds",
        "gauge",
        "seconds",
        _EVENT,
        "When the rank's first line was written, since its process was started, that is neither "
        "noise nor follows from another error (Unix time).",
        _LOGS,
    ),
    MetricSpec(
        "log_first_error_info",
        "gauge",
        "1",
        (*_EVENT, "text"),
        "Text of that line, redacted and cut at 200 characters. Value is always 1; only with "
        "logs.first_error.",
        _LOGS,
    ),
    MetricSpec(
        "log_peer_errors_total",
        "counter",
        "1",
        (*_RANK, "peer", "signature"),
        "Lines in which a rank complains about a peer: its rank, or else its address or host name.",
        _LOGS,
    ),
    MetricSpec(
        "log_read_bytes_total",
        "counter",
        "bytes",
        ("job_id",),
        "Bytes of logs read.",
        _LOGS,
        not_drawn="for queries: what reading costs",
    ),
    MetricSpec(
        "log_skipped_bytes_total",
        "counter",
        "bytes",
        ("job_id",),
        "Bytes of logs left out, because they grow faster than logs.max_bytes_per_second.",
        _LOGS,
        not_drawn="for queries: what is missing",
    ),
    MetricSpec(
        "log_files",
        "gauge",
        "1",
        ("provider",),
        "Files that are followed, by where they were found: process, torchrun, pod or path.",
        _LOGS,
        not_drawn="for queries: what is read",
    ),
    MetricSpec(
        "log_unread_outputs",
        "gauge",
        "1",
        ("reason",),
        "Outputs of jobs that are not read: pipe, socket, terminal or not_a_file hold nothing to "
        "be read; permission_denied, not_found, unreadable, hung (its file system), too_many.",
        _LOGS,
        not_drawn="for queries: what is not read",
    ),
    MetricSpec(
        "log_reader_restarts_total",
        "counter",
        "1",
        (),
        "Times the process that reads logs was started again.",
        "exporter",
        not_drawn="for queries: file systems that hang",
    ),
)


class _LogsMissing(PartialData):
    def __init__(self, error_class: str, text: str) -> None:
        super().__init__(text)
        self.error_class = error_class


@register(
    "logs",
    "errors in the logs of jobs and of the kernel, by class and signature",
    topic="Logs",
    metrics=SPECS,
    is_configured=lambda config: config.logs.enabled,
)
class LogsCollector:
    """Says whose logs are wanted, and publishes what was found in them."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        # A node whose logs are not read need not load them.
        from peerwatch_exporter.sources.logs.job_memory import JobMemory  # noqa: PLC0415
        from peerwatch_exporter.sources.logs.process import LogProcess  # noqa: PLC0415
        from peerwatch_exporter.sources.logs.processes import LogProcesses  # noqa: PLC0415

        self._sources = sources
        self._processes = LogProcesses(config, sources)
        self._memory = JobMemory(config.logs.forget_after_seconds, sources.monotonic)
        started = sources.clock()
        self._process = LogProcess(
            log_settings(config, sources.paths, started), sources, config.logs.max_series
        )
        # Also when the collector is switched off while the exporter runs.
        self._finalizer = weakref.finalize(self, self._process.leave)

    def follow(self, config: ExporterConfig) -> None:
        """Read by other settings; what was counted stays."""
        self._memory.forget_after_seconds = config.logs.forget_after_seconds
        self._process.follow(log_settings(config, self._sources.paths, 0.0), config.logs.max_series)

    def collect(self) -> Iterator[Family]:
        """Yield the families of ``log_*``.

        Raises
        ------
        NoData
            Before the logs were looked at for the first time.
        LogReaderError
            If there is no process that reads logs, and never was.
        PartialData
            At the end, if some logs cannot be read.
        """
        targets, problems = self._processes.targets()
        for job_id, rank in self._memory.restarted(targets):
            self._process.forget_first(job_id, rank)
        forgotten = self._memory.update(targets)
        if forgotten:
            self._process.forget(forgotten)
        self._process.want(targets)
        self._process.start()
        totals, state = self._process.read()
        if not state.has_searched:
            if state.problem is not None:
                raise state.problem
            raise NoData("The logs were not looked at yet.")
        yield from _families(totals, state, targets)
        _raise_missing(state, problems)

    def close(self) -> None:
        """End the process that reads logs."""
        self._finalizer.detach()
        self._process.stop()


def log_settings(config: ExporterConfig, paths: Paths, started: float) -> LogSettings:
    """Return what the process that reads logs is told.

    Parameters
    ----------
    config
        All settings.
    paths
        The roots of the node's files.
    started
        When the exporter started (Unix time).
    """
    logs = config.logs
    return LogSettings(
        procfs=str(paths.procfs),
        kmsg=str(paths.kmsg) if logs.kernel else None,
        processes=logs.processes,
        pods_directory=None if logs.pods_directory is None else str(logs.pods_directory),
        paths=list(logs.paths),
        signatures=[str(path) for path in logs.signatures],
        first_error=logs.first_error,
        tail_bytes=logs.tail_bytes,
        max_bytes_per_second=logs.max_bytes_per_second,
        max_files=logs.max_files,
        started=started,
    )


def _families(totals: LogTotals, state: LogState, targets: Targets) -> Iterator[Family]:
    families = {spec.name: family(spec.name) for spec in SPECS}
    for labels, count in _by_class(totals, targets).items():
        families["log_class_events_total"].add_metric(labels, count)
    for key, count in totals.events.items():
        families["log_events_total"].add_metric(key, count)
        families["log_event_last_timestamp_seconds"].add_metric(key, totals.last[key])
    for (job_id, rank), first in totals.firsts.items():
        named = job_id, rank, first.event_class, first.signature
        families["log_first_error_timestamp_seconds"].add_metric(named, first.time)
        if first.text:
            families["log_first_error_info"].add_metric((*named, first.text), 1)
    for complaint, count in totals.peers.items():
        families["log_peer_errors_total"].add_metric(complaint, count)
    _add_each(families["log_read_bytes_total"], totals.read)
    _add_each(
        families["log_skipped_bytes_total"], {**dict.fromkeys(totals.read, 0), **totals.skipped}
    )
    _add_each(families["log_files"], state.files)
    _add_each(families["log_unread_outputs"], state.unread)
    families["log_reader_restarts_total"].add_metric((), state.restarts)
    yield from (each for each in families.values() if each.rows)


def _add_each(into: Family, values: Mapping[str, float]) -> None:
    for label, value in sorted(values.items()):
        into.add_metric((label,), value)


def _by_class(totals: LogTotals, targets: Targets) -> dict[tuple[str, str, str], int]:
    """Return the events of each class; 0 for every rank here, its job, and the kernel log."""
    ranks = {(target.job_id, str(target.rank)) for target in targets.ranks}
    named = sorted({*ranks, *((job_id, "") for job_id, _ in ranks), ("", "")})
    counts = {(*labels, each.value): 0 for labels in named for each in EventClass}
    for key, count in totals.events.items():
        labels = key.job_id, key.rank, key.event_class
        counts[labels] = counts.get(labels, 0) + count
    return counts


def _raise_missing(state: LogState, problems: Sequence[Exception]) -> None:
    """Raise what is to be said of logs that are not read; nothing if all are."""
    if state.problem is not None:
        raise PartialData(str(state.problem)) from state.problem
    if state.hung:
        raise _LogsMissing("log_hung", f"Reading does not return: {', '.join(state.hung)}")
    if problems:
        raise PartialData(str(problems[0])) from problems[0]
    if denied := state.unread.get("permission_denied"):
        raise _LogsMissing("permission_denied", f"{denied} logs may not be read.")
    if state.kernel_error is not None:
        raise _LogsMissing(state.kernel_error, "The kernel log cannot be read.")
