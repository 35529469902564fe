"""What is asked of the server about a job's configuration: first how many, then who.

A job of 1,500 nodes has some 100,000 values. The server counts them by value, which is a few
hundred rows, and is then asked for the nodes of the few values that a minority has.
"""

from __future__ import annotations

import re

from peerwatch_common.promql import any_of, quoted
from peerwatch_detector.diagnosis.config.keys import aspect_of
from peerwatch_detector.reading.promql import job_matcher

_NODE, _RANK = "node_config_info", "rank_config_info"
_BY = "group by (node, key, value)"
# A usual scrape interval: a subquery needs no finer steps, as there are no samples between them.
_STEP_SECONDS = 15


def counts(job_id: str) -> dict[str, str]:
    """Return the queries for how many nodes have each value."""
    return {
        "node": f"count by (key, value) ({_of_node(job_id)})",
        "rank": f"count by (key, value) ({_of_ranks(job_id)})",
    }


def holders(job_id: str, key: str, value: str) -> str:
    """Return the query for the nodes that have a value."""
    matchers = f"key={quoted(key)},value={quoted(value)}"
    if key.startswith("rank."):
        return f"{_BY} ({_RANK}{{{job_matcher(job_id)},{matchers}}})"
    return f"{_BY} ({_NODE}{{{matchers}}} and on (node) {_members(job_id)})"


def without(job_id: str, key: str) -> str:
    """Return the query for the nodes whose ranks could be read and lack a variable."""
    kind, _, name = aspect_of(key).name.partition(".")
    pattern = quoted(rf"{kind}\.(.+\.)?{re.escape(name)}")
    job = job_matcher(job_id)
    return (
        f'group by (node) ({_RANK}{{{job},key="rank.environment"}})'
        f" unless on (node) {_RANK}{{{job},key=~{pattern}}}"
    )


def appeared(job_id: str, seconds: int) -> dict[str, str]:
    """Return the queries for values that were not there so long ago, and those no longer there.

    Only nodes that had the job, and said how they are set up, at both times.
    """
    return {
        f"{what} {kind}": f"({first} unless {second})"
        f" and on (node) {_members(job_id)} and on (node) {_members(job_id, seconds)}"
        for kind, now, then in (
            ("node", _of_node(job_id), _of_node(job_id, seconds)),
            ("rank", _of_ranks(job_id), _of_ranks(job_id, seconds)),
        )
        for what, first, second in (("new", now, then), ("gone", then, now))
    }


def since(job_id: str, nodes: list[str], keys: list[str], seconds: int) -> str:
    """Return the query for when each value of some keys of some nodes was first seen."""
    chosen = f"{_one_of('node', nodes)},{_one_of('key', keys)}"
    window = f"[{seconds}s:{_STEP_SECONDS}s]"
    return " or ".join(
        f"min by (node, key, value) (min_over_time(timestamp({series}){window}))"
        for series in (
            f"{_NODE}{{{chosen}}}",
            f"{_RANK}{{{job_matcher(job_id)},{chosen}}}",
        )
    )


def published(job_id: str, seconds: int) -> dict[str, str]:
    """Return the queries for the changes that a detector published before this one."""
    job = job_matcher(job_id)
    times = f"peerwatch_job_config_change_timestamp_seconds{{{job}}}"
    texts = f"peerwatch_job_config_change_info{{{job}}}"
    return {
        "times": f"max by (node, key) (last_over_time({times}[{seconds}s]))",
        "texts": f"max by (node, key, before, after) (last_over_time({texts}[{seconds}s]))",
    }


def _of_node(job_id: str, seconds: int = 0) -> str:
    then = _offset(seconds)
    return f"{_BY} ({_NODE}{then} and on (node) {_members(job_id, seconds)})"


def _of_ranks(job_id: str, seconds: int = 0) -> str:
    return f"{_BY} ({_RANK}{{{job_matcher(job_id)}}}{_offset(seconds)})"


def _members(job_id: str, seconds: int = 0) -> str:
    return f"group by (node) (host_job_info{{{job_matcher(job_id)}}}{_offset(seconds)})"


def _offset(seconds: int) -> str:
    return f" offset {seconds}s" if seconds else ""


def _one_of(label: str, names: list[str]) -> str:
    return any_of(label, sorted(set(names)))
