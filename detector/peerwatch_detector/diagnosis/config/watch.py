"""Follows the configuration of one job's nodes: reads it, compares it, and remembers changes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from peerwatch_detector.diagnosis.config import queries
from peerwatch_detector.diagnosis.config.changes import Change, Value, changes, newest
from peerwatch_detector.diagnosis.config.keys import UNSET
from peerwatch_detector.diagnosis.config.majority import Comparison, Counted, Split, compare
from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import Series
from peerwatch_detector.reading.instant_reader import Answers, Instants

# Rows that are published, the smallest minorities first. Chosen: series of a job stay bounded,
# whatever its nodes differ in; four minorities of the largest size fit.
MOST_MINORITIES = 256
# At the first reading: how far back changes are searched, and published ones still count. Chosen:
# longer than a detector is away for an update; what is older it has published before.
_FIRST_SECONDS = 3600
# A change of the last moments of a reading is seen in the next one again, rather than by none: four
# scrape intervals of 15 s.
_OVERLAP_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Minority:
    """A node that is not set up as most nodes of its job are.

    Parameters
    ----------
    node, key, value
        Who has what.
    majority
        What more than half of the nodes have.
    nodes, of_nodes
        How many nodes have this value, and how many have any.
    """

    node: str
    key: str
    value: str
    majority: str
    nodes: int
    of_nodes: int


@dataclass(frozen=True, slots=True)
class ConfigState:
    """What is known of how a job's nodes are set up.

    Parameters
    ----------
    time
        Unix time of the reading.
    minorities
        Nodes that differ.
    splits
        What the job does not agree on at all.
    changes
        What changed while the job ran, oldest first.
    """

    time: float
    minorities: tuple[Minority, ...] = ()
    splits: tuple[Split, ...] = ()
    changes: tuple[Change, ...] = ()


def read_state(
    instants: Instants, job_id: str, before: ConfigState | None, now: float
) -> ConfigState:
    """Read how a job's nodes are set up.

    Parameters
    ----------
    instants
        Where it is read.
    job_id
        The job.
    before
        What was known; None at the first reading.
    now
        Unix time.

    Raises
    ------
    ReadError
        If a query is not answered.
    """
    answers = _all(instants.read(queries.counts(job_id)))
    counted = [
        Counted(row.labels.get("key", ""), row.labels.get("value", ""), int(row.values[-1]))
        for row in (*answers["node"], *answers["rank"])
    ]
    comparison = compare(counted)
    known = _published(instants, job_id) if before is None else before.changes
    passed = _FIRST_SECONDS if before is None else now - before.time
    seconds = _OVERLAP_SECONDS + math.ceil(min(_FIRST_SECONDS, max(0.0, passed)))
    found = _changes(instants, job_id, seconds, now)
    return ConfigState(
        now, _minorities(instants, job_id, comparison), comparison.splits, newest(known, found)
    )


def _minorities(instants: Instants, job_id: str, comparison: Comparison) -> tuple[Minority, ...]:
    """Ask who has the values that a minority has."""
    if not comparison.deviations:
        return ()
    asked = {
        str(place): queries.without(job_id, deviation.key)
        # The devices of a node that differ say so themselves.
        if deviation.value == UNSET and deviation.key.count(".") == 1
        else queries.holders(job_id, deviation.key, deviation.value)
        for place, deviation in enumerate(comparison.deviations)
    }
    answers = _all(instants.read(asked))
    found = [
        Minority(
            row.labels.get("node", ""),
            deviation.key,
            deviation.value,
            deviation.majority,
            deviation.nodes,
            deviation.of_nodes,
        )
        for place, deviation in enumerate(comparison.deviations)
        for row in sorted(answers[str(place)], key=lambda row: row.labels.get("node", ""))
    ]
    return tuple(found[:MOST_MINORITIES])


def _changes(instants: Instants, job_id: str, seconds: int, now: float) -> list[Change]:
    answers = _all(instants.read(queries.appeared(job_id, seconds)))
    found = changes(
        _values((*answers["new node"], *answers["new rank"])),
        _values((*answers["gone node"], *answers["gone rank"])),
        now,
    )
    # Who changed first is of more interest than the rest of a roll-out.
    some = found[:MOST_MINORITIES]
    if not some:
        return []
    query = queries.since(job_id, [c.node for c in some], [c.key for c in some], seconds)
    times = {
        (row.labels.get("node"), row.labels.get("key"), row.labels.get("value")): row.values[-1]
        for row in _all(instants.read({"since": query}))["since"]
    }
    return [
        replace(change, time=float(times.get((change.node, change.key, change.after), now)))
        for change in some
    ]


def _published(instants: Instants, job_id: str) -> tuple[Change, ...]:
    """Return the changes that were published before this process began."""
    answers = _all(instants.read(queries.published(job_id, _FIRST_SECONDS)))
    times = {
        (row.labels.get("node"), row.labels.get("key")): row.values[-1] for row in answers["times"]
    }
    return tuple(
        Change(
            float(time),
            node,
            key,
            row.labels.get("before", ""),
            row.labels.get("after", ""),
        )
        for row in answers["texts"]
        # Not every server keeps all labels.
        if (node := row.labels.get("node"))
        and (key := row.labels.get("key"))
        and (time := times.get((node, key))) is not None
    )


def _values(rows: Iterable[Series]) -> list[Value]:
    names = ("node", "key", "value")
    return [Value(*(row.labels.get(name, "") for name in names)) for row in rows]


def _all(answers: Answers) -> dict[str, Sequence[Series]]:
    """Return the answers; raise the first error among them."""
    found: dict[str, Sequence[Series]] = {}
    for name, answer in answers.items():
        if isinstance(answer, ReadError):
            raise answer
        found[name] = answer
    return found
