"""Aegis' Algorithm 1 over everything that was observed about a job, step after step.

CriticalError names nodes by their own errors. The program, the storage and the scheduler are set
apart next: neither is a node's fault, and Aegis leaves them to others. DistError, RootDiag,
ConfigCheck and NetDiag follow; what they say is weighed together with statistics and verdicts about
collectives. If that does not name a node clearly, nobody is isolated: OfflineDiag says which checks
to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from peerwatch_detector.diagnosis.root.algorithm.config_check import odd_settings
from peerwatch_detector.diagnosis.root.algorithm.considered import Considered, considered
from peerwatch_detector.diagnosis.root.algorithm.critical import critical_errors, weak_errors
from peerwatch_detector.diagnosis.root.algorithm.episode import CLOCK_SECONDS, Episode, episode
from peerwatch_detector.diagnosis.root.algorithm.offline import CheckRun, plan
from peerwatch_detector.diagnosis.root.algorithm.ping_table import PingTable, ping_table
from peerwatch_detector.diagnosis.root.algorithm.program import (
    platform_end,
    program_error,
    storage_error,
)
from peerwatch_detector.diagnosis.root.algorithm.weighing import weigh
from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.taxonomy.cause import Cause, Step, by_node, names
from peerwatch_detector.diagnosis.root.taxonomy.rule import RuleBook
from peerwatch_detector.diagnosis.root.taxonomy.rules import rule_book

_FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class Root:
    """What made a job fail.

    Parameters
    ----------
    episode
        The observations that were weighed.
    path
        The steps that were taken, in order, with what each found.
    causes
        What they name: several where several faults met; none if nothing is wrong.
    checks
        What to run where nobody is named.
    missing
        What was not there to weigh, in sentences.
    works
        Whether the job goes on all the same: then a cause is decided, or the only node that
        statistics find.
    considered
        What else was weighed, and why it is not named.
    """

    episode: Episode
    path: tuple[Step, ...]
    causes: tuple[Cause, ...]
    checks: tuple[CheckRun, ...] = ()
    missing: tuple[str, ...] = ()
    works: bool = False
    considered: tuple[Considered, ...] = ()


def find_root(
    job: JobPlaces,
    evidence: Iterable[Evidence],
    *,
    job_id: str = "",
    until: float = _FOREVER,
    book: RuleBook | None = None,
    pings: PingTable | None = None,
) -> Root:
    """Say what made a job fail.

    Parameters
    ----------
    job
        Its nodes, their ranks and places.
    evidence
        What was observed about it and its nodes, in any order.
    job_id
        The job; observations of other jobs only show what repeats.
    until
        What was seen later is left out.
    book
        The rules; those that are shipped if left out.
    pings
        Counted pings between nodes, if there are any.
    """
    table = pings or ping_table(())
    seen = episode(evidence, book or rule_book(), until, job_id)
    if seen.begun is None:
        return Root(seen, (), ())
    path: list[Step] = []
    causes = _critical(seen, job, path) or _nobodys(seen, job, path)
    causes = causes or _weak(seen, job, path, table)
    checks: tuple[CheckRun, ...] = ()
    if not causes:
        weighed = weigh(seen, job, table)
        path += weighed.steps
        causes = weighed.causes
        if not any(cause.nodes and cause.confidence != "undecided" for cause in causes):
            checks = plan(job, weighed.suspects)
            path.append(Step("OfflineDiag", f"{len(checks)} runs of checks"))
    others = considered(causes, seen, job)
    return Root(seen, tuple(path), causes, checks, _missing(seen, job), considered=others)


def _critical(seen: Episode, job: JobPlaces, path: list[Step]) -> tuple[Cause, ...]:
    """Return critical errors, and the program's error where that came before all of them."""
    found = critical_errors(seen, job)
    if ended := platform_end(seen):
        path += [Step("CriticalError", "none before the scheduler ended the job"), _step(ended)]
        return (ended,)
    first = min((cause.time for cause in found), default=_FOREVER)
    program = program_error(seen, job)
    if program is None or program.nodes or program.time >= first - CLOCK_SECONDS:
        program = None
    else:
        # Nodes are taken back and started again once a job has ended.
        found = tuple(each for each in found if each.symptom != "node_gone")
    path.append(Step("CriticalError", _listed(found), found))
    if not found or program is None or program.main.rule.ambiguous:
        return found
    path.append(_step(program))
    return (program, *(replace(each, confidence="likely") for each in found))


def _nobodys(seen: Episode, job: JobPlaces, path: list[Step]) -> tuple[Cause, ...]:
    """Return the storage's or the program's fault; an ambiguous one gives way to hardware."""
    for cause in (storage_error(seen, job), program_error(seen, job)):
        if cause is None:
            continue
        hardware = [w for w in weak_errors(seen, job) if w.time <= cause.time + CLOCK_SECONDS]
        if cause.main.rule.ambiguous and (hardware or _on_an_odd_node(cause, seen, job)):
            continue
        path.append(_step(cause))
        return (cause,)
    path.append(Step("program and storage", "no error of theirs came first"))
    return ()


def _on_an_odd_node(cause: Cause, seen: Episode, job: JobPlaces) -> bool:
    """Whether only ranks of one node show it, and that node has other settings than the rest."""
    nodes = by_node(cause.speaks_for, job)
    return len(nodes) == 1 < len(job.nodes) and bool(nodes.keys() & odd_settings(seen, job).keys())


def _weak(seen: Episode, job: JobPlaces, path: list[Step], pings: PingTable) -> tuple[Cause, ...]:
    """Return errors of nodes that mostly stop a job, unless other evidence contradicts them."""
    found = weak_errors(seen, job)
    if not found:
        return ()
    # Of a sign that many nodes show, what else points at one of these follows from it.
    named = {node for cause in found for node in _all_nodes(cause, job)}
    weighed = weigh(seen, job, pings)
    others = {node for cause in weighed.causes for node in cause.nodes} - named
    if others:
        path.append(
            Step("errors that may pass", f"{_listed(found)}; but {names(others)} is suspected")
        )
        return ()
    path.append(Step("errors that may pass", _listed(found), found))
    return found


def _all_nodes(cause: Cause, job: JobPlaces) -> tuple[str, ...]:
    """Return the nodes of a cause; of one that many share, all that show it."""
    return cause.nodes or tuple(by_node(cause.speaks_for, job))


def _step(cause: Cause) -> Step:
    name = {"none": "scheduler", "software": "storage"}.get(cause.domain, "program")
    return Step(name, f"{cause.main.rule.name}: {cause.main.evidence.name}", (cause,))


def _listed(causes: Sequence[Cause]) -> str:
    if not causes:
        return "none"
    return "; ".join(
        f"{names(each.nodes) if each.nodes else each.place}: {each.main.rule.name}"
        for each in causes[:4]
    )


def _missing(seen: Episode, job: JobPlaces) -> tuple[str, ...]:
    """Return what would have helped and was not there."""
    kinds = {each.evidence.kind for each in (*seen.observations, *seen.earlier)}
    complaints = seen.of("waiting", "broken")
    peers = any(
        each.evidence.peer_node or each.evidence.peer_address or each.evidence.peer_rank is not None
        for each in complaints
    )
    unknown = sorted(
        {
            each.evidence.name
            for each in (*seen.observations, *seen.earlier)
            if each.evidence.kind == "xid" and each.rule.name == "unknown_xid"
        }
    )
    absent = (
        (not kinds & {"log", "process"}, "Nothing of the ranks' logs or ends is known."),
        (bool(complaints) and not peers, "The errors do not say about whom they complain."),
        (not job.places, "Where nodes stand is not known: shared causes cannot be told."),
        (bool(unknown), f"XID {names(unknown)} is in no catalogue."),
    )
    return tuple(text for is_missing, text in absent if is_missing)
