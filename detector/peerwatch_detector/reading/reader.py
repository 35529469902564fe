"""Where series come from, as the configuration says: the one door to the network.

Whatever goes wrong behind it becomes a ``ReadError`` with a short reason, and the counters in
``ReadingStatistics`` say how often.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Protocol

from peerwatch_common.errors import ConfigError
from peerwatch_detector.config import DetectorConfig, PrometheusConfig, ReadMetric
from peerwatch_detector.frame import Series
from peerwatch_detector.reading import (
    GridReader,
    Matcher,
    RangeReader,
    ReadingSettings,
    Selection,
    promql,
)
from peerwatch_detector.reading.history_reader import HistoryReader
from peerwatch_detector.reading.instant_reader import InstantReader
from peerwatch_detector.reading.span_reader import SpanReading

# A person waits no longer for a part of a view (chosen; Grafana's data sources wait 30 s); so many
# views are read at a time, so that what detection reads keeps most of the server.
_PAST_SECONDS, _PAST_CONNECTIONS = 20.0, 2
# Queries about roots that may be too slow in a row: the subqueries over hours, or those of pings,
# of which there are three or four.
_SLOW_QUERIES = 4


class Reader(RangeReader, Protocol):
    """Delivers series; the detector knows no other api to data."""

    def instant(self, query: str, at: float | None = None) -> list[Series]:
        """Return the value of every series of ``query`` at a Unix time, one sample each.

        It is a ``PartialAnswer`` if the server says that some are missing.
        """


class PrometheusReader(GridReader):
    """The reader of any server with the Prometheus query API.

    Parameters
    ----------
    config
        Address, headers, limits.
    """

    def __init__(self, config: PrometheusConfig) -> None:
        super().__init__(reading_settings(config))


def instant_reader(config: DetectorConfig) -> InstantReader:
    """Return the reader of the jobs' own evidence: its patience is not that of ranges."""
    diagnosis = config.diagnosis
    settings = _patience(config, diagnosis.timeout_seconds, "diagnosis.timeout_seconds")
    return InstantReader(settings, diagnosis.reading_threads)


def exporter_access(config: DetectorConfig) -> SpanReading:
    """Return how exporters are asked for what only they hold.

    Raises
    ------
    ConfigError
        If the password cannot be read.
    """
    settings = config.exporters
    user = None
    if settings.username is not None and settings.password_file is not None:
        try:
            password = settings.password_file.read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                [f"exporters.password_file {str(settings.password_file)!r} cannot be read: {error}"]
            ) from error
        user = (settings.username, password)
    return SpanReading(settings.timeout_seconds, user, settings.ca_file)


def reading_settings(config: PrometheusConfig) -> ReadingSettings:
    """Return how a server is read."""
    return ReadingSettings(
        url=config.url,
        headers=config.headers,
        bearer_token_file=config.bearer_token_file,
        timeout_seconds=config.timeout_seconds,
        lag_seconds=config.lag_seconds,
        **config.reading.model_dump(),
    )


def selection_of(metric: ReadMetric, job_id: str, config: DetectorConfig) -> Selection:
    """Return one metric of one job, recorded or joined as the configuration says."""
    of_job = (Matcher("job_id", "=", job_id),)
    if config.prometheus.recorded and metric.select == "node":
        return Selection(metric.name, metric.recorded, by_node=True)
    if config.prometheus.recorded:
        return Selection(metric.name, metric.recorded, of_job)
    expression = promql.joined_query(metric, job_id, config.rate_window_seconds)
    return Selection(metric.name, metric.recorded, of_job, expression=expression)


def nodes_of_jobs(
    reader: Reader, config: DetectorConfig, start: float, end: float
) -> dict[str, set[str]]:
    """Return the nodes that told of every job between two Unix times, those without samples too."""
    query = promql.known_jobs(config.discovery.job_info, math.ceil(end - start) + 1)
    nodes: dict[str, set[str]] = {}
    for series in reader.instant(query, end):
        nodes.setdefault(series.labels["job_id"], set()).add(series.labels["node"])
    return nodes


def exporters_of_job(
    reader: Reader, job_id: str, label: str, start: float, end: float
) -> dict[str, str]:
    """Return the exporters that told of a job's ranks between two Unix times.

    Parameters
    ----------
    reader
        Where.
    job_id
        The training job.
    label
        The label with the exporters' addresses.
    start, end
        Unix times.

    Returns
    -------
    dict[str, str]
        The node by the address, in the order of the nodes.
    """
    query = promql.ranks_of_job(job_id, math.ceil(end - start) + 1)
    found = {
        series.labels[label]: series.labels.get("node", "")
        for series in reader.instant(query, end)
        if label in series.labels
    }
    return dict(sorted(found.items(), key=lambda item: (item[1], item[0])))


def config_reader(config: DetectorConfig) -> InstantReader:
    """Return the reader of how nodes are set up: apart, for its queries take longer than others."""
    seconds = config.diagnosis.config_timeout_seconds
    return InstantReader(_patience(config, seconds, "diagnosis.config_timeout_seconds"), 1)


def root_reader(config: DetectorConfig) -> InstantReader:
    """Return the reader of all that may be the root of a failure; its limit is of each query."""
    seconds = config.diagnosis.root_timeout_seconds
    settings = _patience(config, seconds, "diagnosis.root_timeout_seconds")
    return InstantReader(settings, 1, _SLOW_QUERIES)


def history_reader(config: DetectorConfig) -> HistoryReader:
    """Return the reader of what the web UI shows of the past: nothing else waits for it."""
    return HistoryReader(_patience(config, _PAST_SECONDS, ""), _PAST_CONNECTIONS)


def _patience(config: DetectorConfig, seconds: float, setting: str) -> ReadingSettings:
    """Return how the server is read by who waits for so long, by a setting or none."""
    settings = reading_settings(config.prometheus)
    return replace(settings, timeout_seconds=seconds, timeout_setting=setting)
