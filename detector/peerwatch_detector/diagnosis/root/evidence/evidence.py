"""One observation about a job, whatever it comes from: what the root diagnosis weighs.

A line of the kernel log, a class of lines in a rank's output, a counter of a NIC that rose, a
verdict about a collective, a finding, a check, a setting that differs: each is an ``Evidence``.
Live they are read from series; a recorded case has them as ``events`` of its ``case.json``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, get_args

from peerwatch_common.logs import one_line
from peerwatch_detector.errors import CaseError

Kind = Literal[
    # The kernel log of a node: name is the XID or SXID, or the signature or class of the line.
    "xid",
    "sxid",
    "kernel",
    # Output of a rank or of the scheduler: name is the signature, class_name its class.
    "log",
    # Hardware, as its driver and sensors see it: name is the counter or the state.
    "gpu",
    "nic",
    "host",
    # What a node lacks: "absent" (nobody can scrape it), "heartbeat" (a rank gives no sign of
    # life), "traffic" (RDMA traffic that stopped or lost its period).
    "absent",
    "heartbeat",
    "traffic",
    # The process of a rank: name is exited, killed, zombie or stopped; text what it died of.
    "process",
    # Optimiser steps: name is stalled, slow, resumed or first.
    "step",
    # Verdicts of other diagnosers and findings of statistics: name is the class, or the metric.
    "collective",
    "finding",
    # Active checks (name is the check), compared settings (name is the key), pings between nodes
    # (name is lost or slow, from node to peer_node).
    "check",
    "config",
    "reach",
    # What was done to the node or the job: a boot; driver_update, drift, maintenance; the job's
    # started, ended, cancelled, time_limit, preempted.
    "boot",
    "change",
    "job",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
# Of a log signature: host, network, distributed symptom, storage, user program, platform, noise.
LOG_CLASSES = ("H", "N", "D", "S", "U", "P", "X")

# What one diagnosis weighs at most; 100,000 ranks that each say four things are within it. 200,000
# take 2 s and 180 MiB (tests/bench/rows/diagnosis.py).
MOST_EVENTS = 400_000
# Characters. Chosen: a log line, cut as sentences are (text.py), and twice a name of 63 in DNS.
_LONGEST_TEXT = 500
_LONGEST_NAME = 128
# More ranks than any job has (by_rank.py); a number above it is a mistake in the file.
_MOST_RANKS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One observation.

    Parameters
    ----------
    time
        When it was made: Unix time, or seconds from the start of a recorded case. Of something
        that happened ``count`` times, the first time.
    kind, name
        What it is, as listed with ``Kind``; "79", "link_downed", "not_launched".
    node
        The node it is about, or on which it was seen; empty where no node is known, as of a line
        of the scheduler.
    class_name
        Class of the observation, where its source gives one: one of ``LOG_CLASSES`` of ``log`` and
        ``kernel``; hardware, degraded, watch, application or ignore of ``xid``; fatal or nonfatal
        of ``sxid``; pass, warn or fail of ``check``; minority or drift of ``config``.
    job_id
        The job that it belongs to; empty if it is about the node itself.
    rank
        The rank that it is about; None if it is no single rank.
    gpu, device
        The GPU's index on the node; the NIC, disk, link or controller.
    peer_node, peer_rank, peer_address
        Whom a rank or node complains about, as far as the line says.
    count
        How often it was seen, at least 1.
    value
        Its number, in the unit of its name: an exit code, a ratio of lost packets, a Z-score.
    text
        For a person: the line, redacted and cut; the value and what the others have.
    """

    time: float
    kind: Kind
    name: str
    node: str = ""
    class_name: str = ""
    job_id: str = ""
    rank: int | None = None
    gpu: str = ""
    device: str = ""
    peer_node: str = ""
    peer_rank: int | None = None
    peer_address: str = ""
    count: int = 1
    value: float | None = None
    text: str = ""

    def to_json(self) -> dict[str, object]:
        """Return it as an event of a ``case.json``; what has its default is left out."""
        return {
            _JSON_NAMES.get(each.name, each.name): value
            for each in fields(self)
            if (value := getattr(self, each.name)) != each.default
        }


# ``class`` is a keyword of Python.
_JSON_NAMES = {"class_name": "class"}
_FIELDS = {_JSON_NAMES.get(each.name, each.name): each for each in fields(Evidence)}
_REQUIRED = [name for name, each in _FIELDS.items() if each.default is MISSING]
_NUMBERS = {"time": float, "value": float, "rank": int, "peer_rank": int, "count": int}


def read_events(events: object, where: str) -> tuple[Evidence, ...]:
    """Read the ``events`` of a case, in order of time; equal times keep their order.

    Parameters
    ----------
    events
        What JSON holds: a list of objects with the fields of ``Evidence``, of which ``time``,
        ``kind`` and ``name`` are required, and ``class`` stands for ``class_name``.
    where
        Named in errors.

    Raises
    ------
    CaseError
        If it is something else; it names the event, the field, the value and what is allowed.
    """
    if not isinstance(events, list):
        raise CaseError(f"{where}: events is {_shown(events)}; it must be a list of objects.")
    if len(events) > MOST_EVENTS:
        raise CaseError(
            f"{where}: has {len(events)} events, more than the {MOST_EVENTS} that are read; "
            "merge those that repeat, with their count."
        )
    read = [_event(each, f"{where}: events[{place}]") for place, each in enumerate(events)]
    return in_order(read)


def in_order(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Return observations in order of time; equal times keep their order."""
    return tuple(sorted(evidence, key=lambda each: each.time))


def _event(event: object, where: str) -> Evidence:
    if not isinstance(event, Mapping):
        raise CaseError(f"{where}: is {_shown(event)}; an event is an object.")
    if unknown := sorted(str(name) for name in event if name not in _FIELDS):
        raise CaseError(
            f"{where}: has unknown fields {_shown(unknown)}; there are {', '.join(_FIELDS)}."
        )
    if missing := [name for name in _REQUIRED if name not in event]:
        raise CaseError(f"{where}: lacks {', '.join(missing)}, which every event has.")
    values: dict[str, Any] = {
        each.name: _number(event[name], name, where)
        if name in _NUMBERS
        else _string(event[name], name, where)
        for name, each in _FIELDS.items()
        if name in event
    }
    kind = values["kind"]
    if kind not in KINDS:
        raise CaseError(f"{where}: kind is {_shown(kind)}; there are {', '.join(KINDS)}.")
    if kind == "log" and values.get("class_name") not in LOG_CLASSES:
        raise CaseError(
            f"{where}: class is {_shown(values.get('class_name', ''))}; that of a line in a log is "
            f"one of {', '.join(LOG_CLASSES)}."
        )
    return Evidence(**values)


def _string(value: object, name: str, where: str) -> str:
    if not isinstance(value, str):
        raise CaseError(f"{where}: {name} is {_shown(value)}; it must be a string.")
    text = one_line(value)
    if name == "text":
        return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
    if len(text) > _LONGEST_NAME:
        raise CaseError(
            f"{where}: {name} has {len(text)} characters; {_LONGEST_NAME} are allowed, more only "
            "in text."
        )
    if not text and name == "name":
        raise CaseError(f"{where}: name is empty; it says what was seen.")
    return text


def _number(value: object, name: str, where: str) -> float | None:
    if value is None and _FIELDS[name].default is None:
        return None
    kind = _NUMBERS[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_finite(value):
        raise CaseError(f"{where}: {name} is {_shown(value)}; it must be a finite number.")
    if kind is int:
        least = 1 if name == "count" else 0
        if value != int(value) or not least <= value <= _MOST_RANKS:
            raise CaseError(
                f"{where}: {name} is {_shown(value)}; it must be a whole number from {least} to "
                f"{_MOST_RANKS}."
            )
    return int(value) if kind is int else float(value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    # JSON has whole numbers of any length.
    except OverflowError:
        return False


def _shown(value: object) -> str:
    shown = one_line(repr(value))
    return shown if len(shown) <= 80 else shown[:79] + "…"
