"""Pieces of PromQL that keep panels small on fleets of thousands of nodes.

A panel may ask for all nodes; it may not draw all of them. ``topk`` alone does not hold that: it
chooses anew at every step, so a graph of a quiet fleet shows each node once. Here the choice is
made once, over the whole time range, and the chosen are drawn from its start to its end.
"""

from __future__ import annotations

CLUSTER = 'cluster=~"$cluster"'
JOB = f'{CLUSTER}, job_id="$job_id"'
NODE = f'{CLUSTER}, node="$node"'
# Which node serves which training job, also of the last minutes (rules/job.rules.yaml).
MEMBERSHIP = "job_node:membership:info"

_SHOWN = 20
_WINDOW = "[$__rate_interval]"
_WHOLE_RANGE = "[$__range] @ end()"


def rate(counter: str, matchers: str, by: str, aggregate: str = "sum") -> str:
    """Return a counter's rate per second, aggregated by labels."""
    return f"{aggregate} by ({by}) (rate({counter}{{{matchers}}}{_WINDOW}))"


def highest(gauge: str, by: str, count: int = _SHOWN) -> str:
    """Return a gauge by labels, of the groups whose highest value in the time range is largest.

    Parameters
    ----------
    gauge
        A selector of series.
    by
        Labels, separated by commas.
    count
        How many groups are kept.
    """
    peak = f"max by ({by}) (max_over_time({gauge}{_WHOLE_RANGE}))"
    return f"max by ({by}) ({gauge}) and topk({count}, {peak})"


def oldest(timestamps: str, by: str, count: int = _SHOWN) -> str:
    """Return the age of the newest of some Unix times by labels, of the oldest groups.

    Parameters
    ----------
    timestamps
        A selector of series.
    by
        Labels, separated by commas.
    count
        How many groups are kept.
    """
    newest = f"max by ({by}) (last_over_time({timestamps}{_WHOLE_RANGE}))"
    return f"time() - max by ({by}) ({timestamps}) and bottomk({count}, {newest})"


def busiest(rates: str, count: int = _SHOWN, *, members: str = "") -> str:
    """Return the rates of the groups that counted most in the time range.

    Parameters
    ----------
    rates
        An expression whose windows are all ``[$__rate_interval]``.
    count
        How many groups are kept.
    members
        Label matchers of training jobs: only their nodes are chosen from.
    """
    return f"{rates} and topk({count}, {over_the_range(rates, members)})"


def idlest(rates: str, count: int = _SHOWN) -> str:
    """Return the rates of the groups that counted least in the time range; see ``busiest``."""
    return f"{rates} and bottomk({count}, {over_the_range(rates)})"


def over_the_range(rates: str, members: str = "") -> str:
    """Return rates over the whole time range, one value for each series; see ``busiest``."""
    whole = rates.replace(_WINDOW, _WHOLE_RANGE)
    if not members:
        return whole
    served = f"last_over_time({MEMBERSHIP}{{{members}}}{_WHOLE_RANGE})"
    return f"{whole} and on (cluster, node) {served}"


def of_nodes(expression: str, members: str) -> str:
    """Return what of an expression is about the nodes of some training jobs.

    Parameters
    ----------
    expression
        Its result has the labels ``cluster`` and ``node``.
    members
        Label matchers of the training jobs.
    """
    return f"({expression} and on (cluster, node) {MEMBERSHIP}{{{members}}})"
