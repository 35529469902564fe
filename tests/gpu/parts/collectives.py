"""NCCL's collectives of a job of four ranks on one GPU, by torch's Flight Recorder and RAS."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gpu.job import need_torch, training
from gpu.part import Result, until

if TYPE_CHECKING:
    from gpu.job import Job
    from gpu.part import Node, Sample

_RANKS, _FAULTY = 4, 2
_SEQUENCE, _AGE = "collective_last_sequence", "collective_in_flight_seconds"
_STATES = ("launched", "started", "completed")
# Older than any collective of a job that trains.
_STUCK_SECONDS = 10.0


def run(node: Node) -> Result:
    """Let a rank stand still before a collective, then one hang in a kernel before it."""
    need_torch(node)
    result = Result("Collectives over NCCL")
    _tried("stand still", "does not launch", result)
    _tried("hang in a kernel", "launches, and does not start", result)
    return result


def _tried(fault: str, what: str, result: Result) -> None:
    with training("collectives.py", ranks=_RANKS, TORCH_NCCL_ENABLE_TIMING="1") as job:
        for rank in job.ranks:
            rank.said("training")
        until(lambda: len(_ranks(job)) == _RANKS, f"a page with {_RANKS} ranks' collectives")
        if not result.lines:
            _healthy(job, result)
        job.ranks[_FAULTY].tell(fault)
        job.ranks[_FAULTY].said("stands")
        began = time.monotonic()
        until(
            lambda: all(_stuck(job, rank) for rank in range(_RANKS) if rank != _FAULTY),
            f"a page on which all wait for rank {_FAULTY}, which was told to {fault}",
        )
        seconds = time.monotonic() - began
        samples = job.exporter.samples()
    result.lines += ["", f"Rank {_FAULTY} {what}; the others waited {seconds:.0f} s later:"]
    groups = sorted({labels["group"] for name, labels, _ in samples if name == _SEQUENCE})
    rows = []
    for rank in range(_RANKS):
        for group in groups:
            states = [_value(samples, _SEQUENCE, rank, group, state=state) for state in _STATES]
            age = _value(samples, _AGE, rank, group)
            if any(state is not None for state in states):
                rows.append((rank, group, *map(_text, states), _text(age)))
    result.table(("rank", "group", *_STATES, "oldest in flight, s"), rows)


def _healthy(job: Job, result: Result) -> None:
    # What the page has of rates comes with the second reading.
    until(lambda: job.exporter.value("collective_bus_bytes_total"), "bytes of collectives")
    samples = job.exporter.samples()
    sources = sorted(
        (labels["source"], int(labels["rank"]), f"{value:g}")
        for name, labels, value in samples
        if name == "collective_source_up"
    )
    result.lines.append("Sources that answered:")
    result.table(("source", "rank", "up"), sources)
    errors = sorted(
        labels["error"]
        for name, labels, _ in samples
        if name == "exporter_collector_error_info" and labels["collector"] == "collectives"
    )
    result.lines += ["", f"Errors of the collector: {', '.join(errors) or 'none'}."]
    for source in ("flight_recorder", "ras"):
        answered = [rank for name, rank, up in sources if name == source and up == "1"]
        if answered != list(range(_RANKS)):
            result.failures.append(f"{source} answers for the ranks {answered} only.")
    seconds = job.exporter.value("collective_duration_seconds_total", collective="all_reduce")
    carried = job.exporter.value("collective_bus_bytes_total", collective="all_reduce")
    if seconds and carried:
        result.lines += ["", f"Bus bandwidth of all_reduce: {carried / seconds / 1e9:.2f} GB/s."]
    else:
        result.failures.append("NCCL's durations are missing although timing is on.")


def _ranks(job: Job) -> set[str]:
    return {
        labels["rank"]
        for name, labels, value in job.exporter.samples()
        if name == _SEQUENCE and value
    }


def _stuck(job: Job, rank: int) -> bool:
    return (job.exporter.value(_AGE, rank=str(rank)) or 0.0) > _STUCK_SECONDS


def _value(samples: list[Sample], name: str, rank: int, group: str, **labels: str) -> float | None:
    wanted = {"rank": str(rank), "group": group, **labels}
    found = [
        value for each, has, value in samples if each == name and wanted.items() <= has.items()
    ]
    return found[0] if found else None


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
