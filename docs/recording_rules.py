"""The recording rules of each preset: what the detector asks for, built by the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import promql_parser as promql

from peerwatch_detector.config import load_preset
from peerwatch_detector.reading.promql import joined_query

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from peerwatch_detector.config import ReadMetric, Scope

_PRESETS = "detector/peerwatch_detector/config/presets"
_LEVELS: tuple[Scope, ...] = ("node", "gpu")


class RuleSet(NamedTuple):
    """A file of recording rules.

    Parameters
    ----------
    preset
        Whose expressions it has.
    group
        What the names of its groups begin with.
    window_seconds
        Of the rates.
    intervals
        Seconds from one evaluation to the next, by level.
    head
        What the file says of itself, without ``#``.
    """

    preset: str
    group: str
    window_seconds: int
    intervals: Mapping[Scope, int]
    head: str


RULE_SETS: Mapping[str, RuleSet] = {
    "recording.rules.yaml": RuleSet(
        "peerwatch",
        "peerwatch_job",
        15,
        {"node": 1, "gpu": 5},
        f"""\
The job-scoped series the detector reads and the dashboard draws: one value per
(cluster, job_id, node), or per (cluster, job_id, node, gpu).

Generated from {_PRESETS}/peerwatch.yaml with an empty
job matcher and a window of 15 s. Change them there, then run `make generate`.

Shape of every expression:
  info series (one per job and node)  *  the node's value, one per node
"max by" straight on the raw series removes what a second scrape of the same node would count
twice; a node that serves two jobs appears once in each job. A missing cluster label is empty.

Cost: an evaluation touches every raw series of every job. The node group is cheap enough for 1 s
(a few dozen raw series per node). 1 s over the per-GPU series is not: 12,500 nodes have 100,000
GPUs, so that group runs every 5 s. Where even that is too much, leave this file out and set
prometheus.recorded to false in the detector's configuration: it then sends the same
expressions itself, for one job at a time. slow/slow.rules.yaml has the dashboards' share.

The window of 15 s needs a scrape interval of at most 5 s for the counters used here.
""",
    ),
    "dcgm/dcgm.rules.yaml": RuleSet(
        "dcgm",
        "peerwatch_dcgm_job",
        15,
        {"node": 1, "gpu": 5},
        f"""\
The series of recording.rules.yaml, made from dcgm-exporter, node_exporter and rdma_exporter instead
of peerwatch-exporter. Load this file in place of that one, never both for the same nodes: they
build the same names.

Generated from {_PRESETS}/dcgm.yaml with an empty job matcher
and a window of 15 s. Change them there, then run `make generate`. That file also says what the
scrape configuration must set (node, job_id) and which fields dcgm-exporter must be given.

A GPU that two jobs share has one series for each of them, as dcgm-exporter copies it.
The window of 15 s needs a scrape interval of at most 5 s for the counters used here.
""",
    ),
    "slow/slow.rules.yaml": RuleSet(
        "peerwatch",
        "peerwatch_slow_job",
        60,
        {"node": 15, "gpu": 15},
        f"""\
The series of recording.rules.yaml from an endpoint that is scraped every 15 s, for the dashboards
alone: every 15 s, rates over a minute. Load this file in place of that one where the detector reads
the fast endpoints (preset: fast) and /metrics is scraped too rarely for rates over 15 s
(docs/scaling.md). Never both for the same nodes: they build the same names.

Generated from {_PRESETS}/peerwatch.yaml with an empty job
matcher and a window of a minute. Change them there, then run `make generate`.

Too coarse for the detector's preset peerwatch, which takes a value of 15 s ago for a missing one.
The window needs a scrape interval of at most 20 s for the counters used here.
""",
    ),
}


def recording_rules(rules: RuleSet) -> str:
    """Return the text of a file of recording rules."""
    preset = load_preset(rules.preset)
    metrics = [*preset.progress, *preset.metrics]
    head = "\n".join(f"# {line}".rstrip() for line in rules.head.splitlines())
    groups = [
        "\n".join(_group(rules, level, [metric for metric in metrics if metric.scope == level]))
        for level in _LEVELS
    ]
    return f"{head}\ngroups:\n" + "\n".join(groups).rstrip("\n") + "\n"


def _group(rules: RuleSet, level: Scope, metrics: list[ReadMetric]) -> Iterator[str]:
    yield f"  - name: {rules.group}_{level}"
    yield f"    interval: {rules.intervals[level]}s"
    yield "    rules:"
    for metric in metrics:
        yield f"      - record: {metric.recorded}"
        yield "        expr: |"
        expression = promql.parse(joined_query(metric, None, rules.window_seconds)).prettify()
        # YAML takes the indentation of the block from its first line.
        yield from (f"          {line}" for line in expression.strip().splitlines())
        yield ""
