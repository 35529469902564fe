"""Which observations belong to one failure of a job: from its last cause to its last consequence.

A node may have logged an error hours ago and been repaired since, a link may have flapped without
harm, and a job that was started again has left the lines of its former attempt behind. Only what
can have to do with the present failure is weighed.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence, in_order
from peerwatch_detector.diagnosis.root.taxonomy.rule import Observation, Role, RuleBook

# A check that fired up to 10 minutes before a job's end, or 5 after it, counts as its cause (Meta).
BEFORE_SECONDS = 600.0
AFTER_SECONDS = 300.0
# What follows may come late: collectives time out after 10 to 30 minutes (torch, NCCL). Twice that.
FOLLOWS_SECONDS = 3600.0
# Signs of one failure follow one another within a time-out; what was longer before was survived.
# torch's time-out of ten minutes over NCCL, and Meta's five after it.
_GAP_SECONDS = 900.0
# What was changed shows when a program is next started. Chosen: a day, as roll-outs take.
CHANGED_SECONDS = 86400.0
# Clocks of nodes and the seconds in which logs are stamped differ by this much. Chosen: a second of
# each.
CLOCK_SECONDS = 2.0
# torch's time-out of a collective over NCCL, where the line does not say.
_TIMEOUT_SECONDS = 600.0
_TIMEOUT_IN_TEXT = re.compile(r"Timeout\(ms\)=(\d{1,9})")

_OF_THE_JOB = frozenset({"log", "process", "step", "collective", "heartbeat", "traffic", "finding"})
_BEGINNINGS: frozenset[Role] = frozenset(
    {"waiting", "broken", "user", "storage", "platform", "suspect"}
)
# Of the job wherever they were seen, as in the kernel log.
_ALWAYS: frozenset[Role] = frozenset({"user", "storage", "platform"})
# Exceptions that only say that something else failed.
_FOLLOWING = re.compile(
    r"RuntimeError|Dist\w*Error|Connection\w*Error|BrokenPipeError|TimeoutError|ChildFailedError|"
    r"CalledProcessError|SignalException|KeyboardInterrupt|SystemExit|EOFError|Rendezvous\w*Error"
)
_EXCEPTION = re.compile(r"\b(?:\w+\.)*([A-Z]\w*(?:Error|Exception))\b")
_SIGNAL = re.compile(r"\bSIG[A-Z]{2,6}\b")


@dataclass(frozen=True, slots=True)
class Episode:
    """One failure of a job.

    Parameters
    ----------
    begun
        When the job first suffered, in the evidence's seconds; None if it does not.
    observations
        What belongs to it, in order of time, without noise.
    earlier
        What the same job or others saw before: it decides nothing, but whether it repeats.
    recovered
        What had passed before it began, as an error of a node that was started again since.
    started
        When the job was last started; minus infinity if that is not known.
    ends
        Ends of processes since it began, in order of time: most follow from the failure.
    changes
        What was done to nodes within the day before it began, such as an update of the driver.
    """

    begun: float | None
    observations: tuple[Observation, ...] = ()
    earlier: tuple[Observation, ...] = ()
    recovered: tuple[Observation, ...] = ()
    started: float = -float("inf")
    ends: tuple[Observation, ...] = ()
    changes: tuple[Observation, ...] = ()

    def of(self, *roles: Role) -> list[Observation]:
        """Return the observations of some roles, in order of time."""
        return [each for each in self.observations if each.rule.role in roles]


def episode(evidence: Iterable[Evidence], book: RuleBook, until: float, job_id: str) -> Episode:
    """Return the last failure of a job.

    Parameters
    ----------
    evidence
        All that is known, of any time.
    book
        The rules.
    until
        What is later is not known yet.
    job_id
        The job; evidence of other jobs only shows what repeats.
    """
    known = in_order(each for each in evidence if each.time <= until)
    own = [each for each in known if each.job_id in ("", job_id)]
    other = [each for each in known if each.job_id not in ("", job_id)]
    start = max((each.time for each in own if _is(each, "job", "started")), default=-float("inf"))
    own = [each for each in own if each.time >= start or each.kind not in _OF_THE_JOB]
    resumed = max((e.time for e in own if _is(e, "step", "resumed")), default=start)
    seen = _observed(own, book)
    begun = _begin(seen, own, max(resumed, start))
    if begun is None:
        return Episode(None, earlier=_observed(other, book))
    first = begun - BEFORE_SECONDS
    window: list[Observation] = []
    earlier = list(_observed(other, book))
    recovered: list[Observation] = []
    # Of each node the last one before the failure. Looked for among all evidence for each
    # observation, it took a minute of CPU for a job of 4,096 nodes.
    boots = {each.node: each.time for each in own if each.kind == "boot" and each.time < begun}
    for each in seen:
        if not first <= each.time <= begun + FOLLOWS_SECONDS:
            earlier.append(each)
        elif each.rule.role != "noise":
            past = _recovered(each, boots, resumed, begun)
            (recovered if past else window).append(each)
    ends = [each for each in seen if each.evidence.kind == "process" and each.time >= first]
    changes = [
        each
        for each in seen
        if each.evidence.kind == "change" and begun - CHANGED_SECONDS <= each.time <= begun
    ]
    return Episode(
        begun,
        tuple(window),
        tuple(earlier),
        tuple(recovered),
        start,
        tuple(ends),
        tuple(changes),
    )


def _observed(evidence: Iterable[Evidence], book: RuleBook) -> tuple[Observation, ...]:
    found = []
    for each in evidence:
        name = process_name(each)
        rule = book.rule_of(each if name == each.name else replace(each, name=name))
        if rule is not None:
            found.append(Observation(each, rule))
    return tuple(found)


def process_name(evidence: Evidence) -> str:
    """Return what a process ended by, as rules name it: a signal, ``exception``, or its state."""
    if evidence.kind != "process" or evidence.name in ("stopped", "oom_killed"):
        return evidence.name
    if found := _SIGNAL.search(evidence.text):
        return found[0]
    if evidence.name == "killed" and evidence.value is not None:
        number = abs(int(evidence.value))
        return next((each.name for each in signal.Signals if each == number), evidence.name)
    found = _EXCEPTION.search(evidence.text)
    return "exception" if found and not _FOLLOWING.fullmatch(found[1]) else evidence.name


def _begin(
    seen: Sequence[Observation], evidence: Sequence[Evidence], recovered: float
) -> float | None:
    """Return when the job began to suffer; before the time-out, where only that is known."""
    after = [each for each in evidence if each.time >= recovered]
    if stalled := [each.time for each in after if _is(each, "step", "stalled")]:
        return stalled[0]
    signs = [
        each
        for each in seen
        if each.time >= recovered
        and each.rule.role in _BEGINNINGS
        and (each.evidence.kind in _OF_THE_JOB or each.rule.role in _ALWAYS)
    ]
    ends = [each.time for each in after if each.kind == "process"]
    ends += [each.time for each in after if _is(each, "job", "ended") and each.class_name == "fail"]
    begun = _first_of_the_last([each.time for each in signs] + ends, min(ends, default=None))
    if begun is None:
        return None
    # Not of an earlier sign, as of a rank that did not come half an hour before its peers' time ran
    # out: what is far apart is no run of signs, and the time-out is what joins them.
    first = next((each for each in signs if each.time == begun), None)
    if first is not None and first.rule.role == "waiting":
        begun -= _timeout(first.evidence)
    return begun


def _first_of_the_last(times: Sequence[float], end: float | None) -> float | None:
    """Return the first of the times that lead up to the end, or to the last time, without a gap."""
    before = sorted(time for time in times if end is None or time <= end)
    if not before:
        return None
    begun = before.pop()
    while before and begun - before[-1] <= _GAP_SECONDS:
        begun = before.pop()
    return begun


def _timeout(evidence: Evidence) -> float:
    found = _TIMEOUT_IN_TEXT.search(evidence.text)
    return int(found[1]) / 1000 if found else _TIMEOUT_SECONDS


def _recovered(each: Observation, boots: Mapping[str, float], resumed: float, begun: float) -> bool:
    """Whether it had passed before the failure: the job went on, or the node was started again."""
    if each.rule.role not in ("critical", "hint") and each.time < resumed <= begun:
        return True
    node = each.evidence.node
    # A setting that differs does so until it is changed, whatever else happens.
    if each.evidence.kind == "config":
        return False
    return bool(node) and each.time < boots.get(node, each.time)


def _is(evidence: Evidence, kind: str, name: str) -> bool:
    return evidence.kind == kind and evidence.name == name
