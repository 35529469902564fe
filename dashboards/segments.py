"""The row about where the seconds of a step go: shares of segments, and ranks against their peers.

Series of ``span_seconds_total`` exist where a job keeps spans (docs/spans.md).
"""

from __future__ import annotations

from links import series_to
from parts import Panel, areas, heat
from promql import busiest, over_the_range

# They do not contain one another, so that they and the rest are a step.
_PARTS = "data|forward|backward|optimizer|checkpoint"
# In which a rank waits for others; what a step has beside them is its own work.
_WAITING = "backward|collective"
_BY = "cluster, job_id, node, rank"
_WINDOW = "[$__rate_interval]"
# Rows of the heat map.
_SHOWN = 60
# Segments shorter than this share of a step are noise as a ratio.
_LEAST_SHARE = 0.01


def panels(job: str) -> list[Panel]:
    """Return the panels about the segments of a step.

    Parameters
    ----------
    job
        Label matchers of the training job.
    """
    slowest = f"and on ({_BY}) topk(1, {over_the_range(_own_work(job))})"
    return [
        areas(
            "Where a step goes",
            "Share of the job's steps by segment, mean over its ranks; other is what no segment "
            "covers. backward contains what DistributedDataParallel communicates. Needs spans "
            "(docs/spans.md).",
            "percentunit",
            *_shares(job, ""),
        ).max(1),
        areas(
            "Where a step of the slowest rank goes",
            "The same of the rank that had most work of its own in the time range: the time of "
            "its step outside backward and collectives, in which ranks wait for one another. What "
            "is wider here than on the left keeps the job waiting.",
            "percentunit",
            *_shares(job, slowest),
        ).max(1),
        heat(
            "Segments of each rank against the median of all",
            "Time in a segment, divided by the median over the ranks; green to red is 1 to 1.5 "
            f"times. The {_SHOWN} rows that are farthest above their peers, without segments of "
            f"less than {_LEAST_SHARE:.0%} of a step. Where one rank is high, the others are low "
            "in backward or collective: they wait for it.",
            "percentunit",
            _against_peers(job),
            "rank {{rank}} {{segment}} ({{node}})",
        )
        .min(1)
        .max(1.5)
        .data_links(series_to("node", "job_id", "node")),
    ]


def _rate(job: str, segments: str) -> str:
    return f'rate(span_seconds_total{{{job}, segment=~"{segments}"}}{_WINDOW})'


def _own_work(job: str) -> str:
    step = f"sum by ({_BY}) ({_rate(job, 'step')})"
    waiting = f"sum by ({_BY}) ({_rate(job, _WAITING)})"
    return f"({step} - {waiting})"


def _shares(job: str, chosen: str) -> tuple[tuple[str, str], tuple[str, str]]:
    steps = f"scalar(avg({_rate(job, 'step')} {chosen}) > 0)"
    part = f"avg by (segment) ({_rate(job, _PARTS)} {chosen})"
    return (
        (f"{part} / {steps}", "{{segment}}"),
        (f"clamp_min(1 - sum({part}) / {steps}, 0)", "other"),
    )


def _against_peers(job: str) -> str:
    each = f"sum by ({_BY}, segment) ({_rate(job, '.+')})"
    median = f"quantile by (segment) (0.5, {each})"
    least = f"{_LEAST_SHARE} * scalar(avg({_rate(job, 'step')}))"
    ratio = f"({each} > {least}) / on (segment) group_left () ({median} > 0)"
    return busiest(ratio, _SHOWN)
