"""Which sources say anything about a job: what is missing could not be weighed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading import promql
from peerwatch_detector.reading.instant_reader import Instants

# Chosen: sources come and go with programs and settings, not with scrapes.
KEPT_SECONDS = 60.0
_OF_NODES = (
    "and on (cluster, node) group by (cluster, node) (last_over_time(rank_info{ {{- job -}} }[5m]))"
)


@dataclass(frozen=True, slots=True)
class Source:
    """A source of evidence about a job.

    Parameters
    ----------
    name
        As a person calls it.
    query
        Counts its series.
    advice
        Where it would come from.
    """

    name: str
    query: str
    advice: str


SOURCES: Mapping[str, Source] = {
    "ranks": Source(
        "ranks and their processes",
        "count(rank_info{ {{- job -}} })",
        "exporters find no process of the job",
    ),
    "steps": Source(
        "steps",
        "count(rank_last_step_timestamp_seconds{ {{- job -}} })",
        "its ranks write no heartbeat files",
    ),
    "collectives": Source(
        "collectives",
        "count(collective_last_sequence{ {{- job -}} })",
        "the job runs without the hook, see docs/collectives.md",
    ),
    "logs": Source(
        "logs of ranks",
        "count(log_read_bytes_total{ {{- job -}} })",
        "no log of the job is followed: logs.enabled of the exporters, see docs/exporter.md",
    ),
    "gpus": Source(
        "GPUs and XIDs",
        f"count(gpu_xid_class_errors_total {_OF_NODES})",
        "exporters see no NVIDIA GPU on its nodes",
    ),
    "nics": Source(
        "RDMA ports",
        f"count(nic_link_downed_total {_OF_NODES})",
        "its nodes have none that an exporter sees",
    ),
}


@dataclass(frozen=True, slots=True)
class SourcesView:
    """Which sources of a job are there and which are not; ``note`` says why that is not known."""

    present: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    note: str = ""


def read_sources(instants: Instants, job_id: str) -> SourcesView:
    """Ask which sources say anything about a job."""
    queries = {name: promql.job_query(each.query, job_id) for name, each in SOURCES.items()}
    try:
        answers = instants.read(queries)
    except ReadError as error:
        return SourcesView(note=str(error))
    present, missing, notes = [], [], []
    for name, source in SOURCES.items():
        answer = answers[name]
        if isinstance(answer, ReadError):
            notes.append(f"{source.name}: {answer}")
        elif answer:
            present.append(source.name)
        else:
            missing.append(f"{source.name} ({source.advice})")
    return SourcesView(tuple(present), tuple(missing), "; ".join(notes))
