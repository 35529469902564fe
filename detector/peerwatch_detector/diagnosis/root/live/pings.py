"""Series of pings as a table of pairs, and as evidence about those that lose packets."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping

from peerwatch_detector.diagnosis.diagnoser import Samples
from peerwatch_detector.diagnosis.root.algorithm.net_diag import PingSymptom
from peerwatch_detector.diagnosis.root.algorithm.ping_matrix import Cell
from peerwatch_detector.diagnosis.root.algorithm.ping_table import (
    SIZES,
    PairCount,
    PingTable,
    ping_table,
)
from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence

# Of more pairs the first are shown; the table has all. 25 nodes with eight peers each, as many as a
# dashboard's matrix shows (docs/pings.md).
_MOST_PAIRS = 200

_Key = tuple[str, str, str, str]
_Numbers = Mapping[_Key, float]


def ping_table_of(samples: Samples) -> PingTable:
    """Return the pings of the last minutes by pair of nodes.

    Parameters
    ----------
    samples
        Answers to ``QUERIES``; peers whose address no node has are left out.
    """
    nodes = {
        labels["address"]: labels["node"]
        for labels, _ in _rows(samples, "ping_addresses")
        if labels.get("address") and labels.get("node")
    }
    sent = _numbers(samples, "pings_sent", nodes)
    seconds = _numbers(samples, "pings_seconds", nodes)
    lost = {
        direction: _numbers(samples, "pings_lost", nodes, direction)
        for direction in ("to_peer", "from_peer", "unknown")
    }
    return ping_table(_counts(sent, seconds, lost))


def _counts(sent: _Numbers, seconds: _Numbers, lost: Mapping[str, _Numbers]) -> Iterator[PairCount]:
    for key, number in sent.items():
        there, back, unknown = (
            round(lost[direction].get(key, 0.0))
            for direction in ("to_peer", "from_peer", "unknown")
        )
        answered = number - there - back - unknown
        mean = seconds[key] / answered if key in seconds and answered > 0 else None
        yield PairCount(*key, round(number), there, back, unknown, mean)


def _numbers(
    samples: Samples, name: str, nodes: Mapping[str, str], direction: str = ""
) -> dict[_Key, float]:
    """Return a counter's increase by source, destination, protocol and size."""
    found: dict[_Key, float] = defaultdict(float)
    for labels, value in _rows(samples, name):
        peer = nodes.get(labels.get("peer", ""))
        if peer and labels.get("direction", "") == direction:
            # A node may have several addresses.
            key = labels.get("node", ""), peer, labels.get("protocol", ""), labels.get("size", "")
            found[key] += max(0.0, value)
    return found


def _rows(samples: Samples, name: str) -> Iterator[tuple[Mapping[str, str], float]]:
    for series in samples.get(name, ()):
        value = float(series.values[-1]) if len(series.values) else math.nan
        if math.isfinite(value):
            yield series.labels, value


def ping_evidence(table: PingTable, now: float) -> list[Evidence]:
    """Return pairs that lose packets or answer late, each with the smallest size that shows it.

    Parameters
    ----------
    table
        Counted pings.
    now
        Until when they were counted (Unix time).
    """
    found: dict[tuple[str, str], Evidence] = {}
    tables = (*(table.cells[s] for s in SIZES), table.slow, table.rdma)
    symptoms: tuple[PingSymptom, ...] = ("", "large", "full", "slow", "rdma")
    for symptom, cells in zip(symptoms, tables, strict=True):
        for cell in cells:
            if cell.is_bad:
                found.setdefault((cell.source, cell.destination), _evidence(cell, symptom, now))
    return list(found.values())[:_MOST_PAIRS]


def _evidence(cell: Cell, symptom: PingSymptom, now: float) -> Evidence:
    is_slow = symptom == "slow"
    kinds = {"large": "large ", "full": "full ", "rdma": "RDMA "}
    size = kinds.get(symptom, "")
    text = "answers late" if is_slow else f"{cell.lost} of {cell.sent} {size}pings lost"
    return Evidence(
        time=now,
        kind="reach",
        name="slow" if is_slow else "lost",
        node=cell.source,
        peer_node=cell.destination,
        count=cell.sent,
        value=None if is_slow else cell.lost / cell.sent,
        text=text,
    )
