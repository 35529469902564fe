"""What was observed about a job, in order of time: one row for what many ranks say alike.

A failure of one node makes thousands of ranks write the same line. What the same kind of evidence
says within a minute is one row, with how many nodes and ranks it comes from; nodes at fault keep
rows of their own, so that who was first stays visible.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from peerwatch_detector.config.titles import finding_words
from peerwatch_detector.diagnosis.root.algorithm.distributed import peer_of
from peerwatch_detector.diagnosis.root.algorithm.episode import process_name
from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence, Kind
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.taxonomy.cause import names
from peerwatch_detector.diagnosis.root.taxonomy.rules import rule_book

# The same from the same source is one event until it has been quiet for so long: four scrapes.
_QUIET_SECONDS = 60.0
# So many nodes have rows of their own; of more, what they say alike is one row. Chosen: above the
# two nodes that a diagnosis isolates.
_MOST_APART = 3
# States and settings that hold at an unknown time have none; a time far outside of ours is garbage:
# before 1973, after 2286.
_KNOWN_FROM, _KNOWN_UNTIL = 1e8, 1e10

SOURCE_OF: Mapping[Kind, str] = {
    "xid": "kernel log",
    "sxid": "kernel log",
    "kernel": "kernel log",
    "gpu": "GPU",
    "nic": "NIC",
    "traffic": "NIC",
    "host": "node",
    "absent": "node",
    "boot": "node",
    "check": "checks and settings",
    "config": "checks and settings",
    "reach": "checks and settings",
    "change": "checks and settings",
    "log": "logs of ranks",
    "process": "ranks",
    "heartbeat": "ranks",
    "step": "ranks",
    "collective": "collectives",
    "finding": "findings",
    "job": "job",
}
# In the order of a picture: what is no evidence of the root comes last.
ALL_SOURCES = (*dict.fromkeys(SOURCE_OF.values()), "metrics", "alerts", "responder")
_CLASSES: Mapping[str, str] = {
    "H": "node",
    "N": "network",
    "D": "symptom of another rank's fault",
    "S": "storage",
    "U": "user's program",
    "P": "platform",
    "X": "noise",
}
# Rules say what these mean for a cause, which is not what happened.
_SAYS: Mapping[tuple[str, str], str] = {
    ("step", "stalled"): "the last step that the job made",
    ("step", "resumed"): "the job makes steps again",
}


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """What was observed alike within a short time.

    Parameters
    ----------
    time, until
        When it was first and last seen, Unix time; None if that is not known.
    source
        The source, one of ``ALL_SOURCES``.
    what
        Name of it: "XID 79".
    says
        What that means: "fell off the bus"; empty where nobody knows.
    class_name
        Of lines in logs, their class in words.
    nodes
        Where, in the order in which they were first seen.
    ranks, gpus, devices
        Of which; empty if it is about whole nodes.
    about
        Nodes or addresses that are complained about.
    count
        How often.
    text
        The first line, or the first value.
    first_of
        Numbers of the diagnoses, from 1, that begin with it.
    speaks_for
        Numbers of all diagnoses that it speaks for.
    """

    time: float | None
    until: float | None
    source: str
    what: str
    says: str
    class_name: str
    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    gpus: tuple[str, ...]
    devices: tuple[str, ...]
    about: tuple[str, ...]
    count: int
    text: str
    first_of: tuple[int, ...] = ()
    speaks_for: tuple[int, ...] = ()

    @property
    def where(self) -> str:
        """Nodes, and of which parts of them, for a person."""
        parts = [names(self.nodes, 3)] if self.nodes else []
        parts += [
            _counted(found, part, f"{part}s")
            for found, part in ((self.gpus, "GPU"), (self.devices, "device"))
            # Index 3 of two nodes is not the same GPU: of several nodes only what all have is said.
            if len(found) == 1 or (found and len(self.nodes) == 1)
        ]
        if self.ranks:
            parts.append(_counted(self.ranks, "rank", "ranks"))
        return ", ".join(parts)


def _counted(found: Sequence[object], singular: str, plural: str) -> str:
    if len(found) == 1:
        return str(found[0]) if singular == "device" else f"{singular} {found[0]}"
    return f"{len(found)} {plural}"


def timeline(
    evidence: Iterable[Evidence],
    job: JobPlaces,
    apart: Collection[str] = (),
    causes: Sequence[Sequence[Evidence]] = (),
) -> tuple[TimelineRow, ...]:
    """Return what was observed as rows, in order of time; those without a time come last.

    Parameters
    ----------
    evidence
        In order of time.
    job
        Who is who in it.
    apart
        Nodes that are never merged with others: those at fault.
    causes
        For every diagnosis what speaks for it, the evidence that it begins with first.
    """
    speaks: dict[Evidence, list[int]] = {}
    for number, found in enumerate(causes, 1):
        for each in found:
            speaks.setdefault(each, []).append(number)
    first: dict[Evidence, list[int]] = {}
    for number, found in enumerate(causes, 1):
        for each in found[:1]:
            first.setdefault(each, []).append(number)
    rows = []
    for burst in _bursts(evidence):
        for group in _apart(burst, job, apart):
            row = _row(group, job)
            rows.append(
                replace(
                    row,
                    first_of=_numbers(group, first),
                    speaks_for=_numbers(group, speaks),
                )
            )
    known = sorted((row for row in rows if row.time is not None), key=lambda row: row.time or 0.0)
    return (*known, *(row for row in rows if row.time is None))


def _numbers(group: Sequence[Evidence], of: Mapping[Evidence, list[int]]) -> tuple[int, ...]:
    if not of:
        return ()
    return tuple(sorted({number for each in group for number in of.get(each, ())}))


def _bursts(evidence: Iterable[Evidence]) -> list[list[Evidence]]:
    """Return what says the same, cut where it was quiet for long."""
    last: dict[tuple[str, str, str], list[Evidence]] = {}
    found: list[list[Evidence]] = []
    for each in evidence:
        # The same XID may be known with its class and without.
        class_name = each.class_name if each.kind in ("log", "kernel") else ""
        key = (each.kind, process_name(each), class_name)
        burst = last.get(key)
        if burst is None or each.time - burst[-1].time > _QUIET_SECONDS:
            burst = last[key] = []
            found.append(burst)
        burst.append(each)
    return found


def _apart(
    burst: Sequence[Evidence], job: JobPlaces, apart: Collection[str]
) -> list[list[Evidence]]:
    """Return the burst by node where these are few or at fault, and the rest together."""
    by_node: dict[str, list[Evidence]] = {}
    for each in burst:
        by_node.setdefault(_node(each, job), []).append(each)
    others = [node for node in by_node if node not in apart]
    if len(others) <= _MOST_APART:
        return list(by_node.values())
    alone = [found for node, found in by_node.items() if node in apart]
    together = [each for each in burst if _node(each, job) not in apart]
    return [*alone, together]


def _node(each: Evidence, job: JobPlaces) -> str:
    return each.node or ("" if each.rank is None else job.ranks.get(each.rank, ""))


def _row(group: Sequence[Evidence], job: JobPlaces) -> TimelineRow:
    first = group[0]
    known = _KNOWN_FROM <= first.time < _KNOWN_UNTIL
    name = process_name(first)
    rule = rule_book().rule_of(replace(first, name=name))
    says = _SAYS.get((first.kind, first.name), rule.says if rule is not None else "")
    return TimelineRow(
        time=first.time if known else None,
        until=min(group[-1].time, _KNOWN_UNTIL) if known else None,
        source=SOURCE_OF[first.kind],
        what=_what(first, name),
        says=says,
        class_name=_CLASSES.get(first.class_name, "") if first.kind in ("log", "kernel") else "",
        nodes=_distinct(_node(each, job) for each in group),
        ranks=tuple(sorted({each.rank for each in group if each.rank is not None})),
        gpus=_distinct(each.gpu for each in group),
        devices=_distinct(each.device for each in group),
        about=_distinct(peer_of(each, job) or each.peer_address for each in group),
        count=sum(_counts(group).values()),
        text=next((each.text for each in group if each.text), ""),
    )


def _counts(group: Sequence[Evidence]) -> dict[tuple[object, ...], int]:
    """Return how often each thing was seen: a line about two peers is one line."""
    counts: dict[tuple[object, ...], int] = {}
    for each in group:
        key = (each.node, each.rank, each.gpu, each.device, each.time)
        counts[key] = max(each.count, counts.get(key, 0))
    return counts


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in values if value))


def _what(first: Evidence, name: str) -> str:
    if first.kind in ("xid", "sxid"):
        return f"{first.kind.upper()} {first.name}"
    if first.kind == "process" and name != first.name:
        return f"ended by {name}" if name != "exception" else "ended with an exception"
    return finding_words(name) if first.kind == "finding" else name.replace("_", " ")
