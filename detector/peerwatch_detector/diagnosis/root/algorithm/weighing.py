"""DistError, RootDiag, ConfigCheck and NetDiag together with all else that points at a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peerwatch_detector.diagnosis.root.algorithm.config_check import breaking_settings, odd_settings
from peerwatch_detector.diagnosis.root.algorithm.distributed import (
    complaints,
    distributed_errors,
    peer_of,
    touched_by_all,
)
from peerwatch_detector.diagnosis.root.algorithm.episode import CLOCK_SECONDS, Episode
from peerwatch_detector.diagnosis.root.algorithm.net_diag import Unreachable, net_diag
from peerwatch_detector.diagnosis.root.algorithm.ping_table import PingTable
from peerwatch_detector.diagnosis.root.algorithm.suspicion import (
    LEAST_WEIGHT,
    TIMES_THE_NEXT,
    Suspicion,
    most_suspected,
    suspicions,
)
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.taxonomy.cause import Cause, Step, by_node, names
from peerwatch_detector.diagnosis.root.taxonomy.rule import Observation
from peerwatch_detector.diagnosis.verdict import Action, Domain

# DistError on at most so many hosts names them (Aegis).
_MOST_HOSTS = 2
# On the scale of suspicion.py: 2 names a node by itself, less needs another sign. Settings that
# differ are more than a difference in numbers, yet may be harmless.
_ROOT_DIAG, _NET_DIAG, _CONFIG_CHECK, _ALONE, _SILENT = 2.0, 2.0, 1.5, 2.0, 1.0
# Two steps that agree, each of which would be enough.
_SURE_WEIGHT = 2 * LEAST_WEIGHT


@dataclass(frozen=True, slots=True)
class Weighed:
    """What the steps after CriticalError say.

    Parameters
    ----------
    steps
        What each found.
    causes
        The node, place or path that they name, or one cause that names nobody.
    suspects
        Nodes that something points at, the most suspected first.
    """

    steps: tuple[Step, ...]
    causes: tuple[Cause, ...]
    suspects: tuple[str, ...]


def weigh(seen: Episode, job: JobPlaces, pings: PingTable) -> Weighed:
    """Weigh everything that points at a node, and name the node if it is clear."""
    found = suspicions(seen, job)
    lost = net_diag(seen, job, pings)
    steps = (
        _dist_error(seen, job, found),
        _root_diag(seen, job, lost, found),
        _config_check(seen, job, found),
        _net_diag(seen, job, lost, found, pings),
    )
    _program_of_an_odd_node(seen, job, found)
    best = most_suspected(found)
    ordered = sorted(found.values(), key=lambda each: (-each.weight, each.node))
    suspects = tuple(each.node for each in ordered if each.weight >= 1.0)[:4]
    if best is not None:
        return Weighed(steps, (_of_node(best, ordered, seen),), suspects)
    place = next((each for each in lost if each.what == "place"), None)
    # Counted pings are of now, and a failure may be long ago.
    if place is not None and (about := _pings(seen)):
        return Weighed(steps, (_of_place(place, about),), suspects)
    open_one = (
        _pair(seen, job)
        or _only_odd(ordered, seen, job)
        or _only_different(ordered)
        or _undecided(ordered, seen)
    )
    return Weighed(steps, () if open_one is None else (open_one,), suspects)


def _suspect(found: dict[str, Suspicion], node: str) -> Suspicion:
    return found.setdefault(node, Suspicion(node))


def _dist_error(seen: Episode, job: JobPlaces, found: dict[str, Suspicion]) -> Step:
    """Suspect the only host with errors, or the only one without."""
    errors = distributed_errors(seen, job)
    result = f"{len(errors)} of {len(job.nodes)} nodes"
    if not errors or len(job.nodes) <= 2 * _MOST_HOSTS:
        return Step("DistError", result)
    if len(errors) <= _MOST_HOSTS:
        peers = {peer_of(each.evidence, job) for own in errors.values() for each in own} - {""}
        for node, own in errors.items():
            # Who waited until its time ran out, or names another host, may be a victim.
            broken = [each for each in own if each.rule.role == "broken"]
            if broken and len(errors) == 1 and not peers - {node}:
                _suspect(found, node).add(_ALONE, broken, "the only node with errors")
            elif broken:
                _suspect(found, node).add(_SILENT, broken, "one of few nodes with errors")
    elif len(errors) == len(job.nodes) - 1:
        (silent,) = set(job.nodes) - set(errors)
        _suspect(found, silent).add(_SILENT, (), "the only node without a complaint")
    return Step("DistError", result)


def _root_diag(
    seen: Episode, job: JobPlaces, lost: Sequence[Unreachable], found: dict[str, Suspicion]
) -> Step:
    """Suspect the node that all complaints touch, or all of the first ones.

    Where packets are lost at the border of a place, connections of all its nodes fail, and the
    first of them by chance.
    """
    pairs = complaints(seen, job)
    touched = touched_by_all(pairs)
    is_place = any(each.what == "place" for each in lost)
    if touched is None or (touched.first and is_place):
        return Step("RootDiag", f"{len(pairs)} pairs of nodes; none that all touch")
    about = [
        each for each in seen.of("waiting", "broken") if peer_of(each.evidence, job) == touched.node
    ]
    which = "the first connections that failed" if touched.first else "all failed connections"
    _suspect(found, touched.node).add(_ROOT_DIAG, about, f"{which} touch it")
    return Step("RootDiag", f"{which} touch {touched.node}, those of {touched.others} nodes")


def _config_check(seen: Episode, job: JobPlaces, found: dict[str, Suspicion]) -> Step:
    odd = odd_settings(seen, job)
    for node, own in odd.items():
        _suspect(found, node).add(_CONFIG_CHECK, own, "its settings differ")
    keys = sorted({each.evidence.name for own in odd.values() for each in own})
    return Step("ConfigCheck", f"{names(sorted(odd))} in {names(keys)}" if odd else "none differs")


def _program_of_an_odd_node(seen: Episode, job: JobPlaces, found: dict[str, Suspicion]) -> None:
    """Suspect a node with odd settings more if the program fails there and nowhere else."""
    failed = by_node([each for each in seen.of("user") if each.rule.ambiguous], job)
    if len(failed) == 1 and (both := failed.keys() & odd_settings(seen, job).keys()):
        (node,) = both
        _suspect(found, node).add(1.0, failed[node], "the program fails on this node alone")


def _net_diag(
    seen: Episode,
    job: JobPlaces,
    lost: Sequence[Unreachable],
    found: dict[str, Suspicion],
    pings: PingTable,
) -> Step:
    if not lost:
        return Step("NetDiag", _nothing_lost(pings))
    for each in lost:
        # Peers may be nodes of other jobs.
        if each.what == "node" and (each.name in job.nodes or not job.nodes):
            about = [
                observation
                for observation in _pings(seen)
                if each.name in (observation.evidence.node, observation.evidence.peer_node)
            ]
            _suspect(found, each.name).add(_NET_DIAG, about, str(each))
    more = f"; and {len(lost) - 4} more" if len(lost) > 4 else ""
    return Step("NetDiag", "; ".join(str(each) for each in lost[:4]) + more)


def _nothing_lost(pings: PingTable) -> str:
    if not pings.pairs:
        return "no pair of nodes is known to lose packets"
    if not pings.has_enough:
        return f"{pings.pairs} pairs of nodes ping each other, not often enough yet to say anything"
    return f"{pings.pairs} pairs of nodes ping each other, and none loses packets or answers late"


def _pings(seen: Episode) -> list[Observation]:
    return [each for each in seen.of("hint") if each.evidence.kind == "reach"]


def _of_node(best: Suspicion, ordered: Sequence[Suspicion], seen: Episode) -> Cause:
    observations = sorted(best.speaks_for, key=_says_most) or list(seen.observations)
    main = observations[0]
    domain: Domain = main.rule.domain
    connections = any("touch" in reason or "errors" in reason for reason in best.reasons)
    closed = _ended_first(best.node, seen) or _only_closed(main, best)
    if domain == "unknown" and connections and not closed:
        # A node whose connections break first has lost a GPU, a NIC or itself (Aegis: 71 % of
        # such failures are no network's).
        domain = "hardware"
    elif closed and main.rule.role == "broken":
        # Transfers to a process that has ended are not answered either.
        domain = "unknown"
    others = [each for each in ordered if each is not best]
    against = [f"something points at {names([o.node for o in others])}, too"] if others else []
    if domain == "unknown":
        against.append("why it happened is not known")
    return Cause(
        (best.node,),
        main.rule.symptom,
        domain,
        _action(main, best, seen),
        "sure" if best.weight >= _SURE_WEIGHT and len(best.reasons) > 1 else "likely",
        # Settings may differ since long before.
        min((e.time for e in best.speaks_for if e.evidence.kind != "config"), default=main.time),
        main,
        tuple(sorted(best.speaks_for, key=lambda each: each.time)),
        tuple(against),
    )


def _says_most(each: Observation) -> tuple[bool, bool, float]:
    """Sort what says why before what says who, and a time-out last."""
    rule = each.rule
    return rule.domain == "unknown", rule.symptom in ("nccl_timeout", "slow"), each.time


def _action(main: Observation, best: Suspicion, seen: Episode) -> Action:
    """Return what to do: a job that goes on is not stopped for a node that is slow."""
    if _ended_first(best.node, seen):
        # Its host lives and says nothing of hardware: connections fell with the process.
        return "restart"
    if _only_closed(main, best):
        return "inspect"
    if main.rule.action in ("restart", "inspect") and main.rule.role == "suspect":
        # Who, and not why: a node in order may run the rank that does not come.
        return main.rule.action
    stands = any(each.evidence.kind in ("log", "process") for each in seen.observations)
    stands = stands or any(each.rule.symptom == "hang" for each in seen.observations)
    return "isolate" if stands else "drain"


def _only_closed(main: Observation, best: Suspicion) -> bool:
    """Whether nothing but closed connections points at a node: its host lived to close them.

    A transfer that is not answered says more: NCCL's retries exceeded, no route.
    """
    return main.rule.domain == "unknown" and {each.rule.role for each in best.speaks_for} <= {
        "broken",
        "waiting",
    }


def _ended_first(node: str, seen: Episode) -> bool:
    """Whether the first process of the job that ended was one of the node, before complaints."""
    if not seen.ends:
        return False
    first = seen.ends[0]
    complaints_begin = min((e.time for e in seen.of("waiting", "broken")), default=first.time)
    return first.evidence.node == node and first.time <= complaints_begin + CLOCK_SECONDS


def _of_place(lost: Unreachable, about: Sequence[Observation]) -> Cause:
    return Cause(
        (),
        "infiniband_link",
        "hardware",
        "ask",
        "likely",
        about[0].time,
        about[0],
        tuple(about),
        place=lost.name,
    )


def _pair(seen: Episode, job: JobPlaces) -> Cause | None:
    """Return the only two nodes that complain, about each other: one of them, or the path."""
    pairs = complaints(seen, job)
    nodes = {node for each in pairs for node in (each.source, each.destination)}
    if len(nodes) != _MOST_HOSTS or len(job.nodes) <= 2 * _MOST_HOSTS:
        return None
    if set(distributed_errors(seen, job)) - nodes:
        return None
    signs = seen.of("waiting", "broken")
    return Cause(
        tuple(sorted(nodes)),
        signs[0].rule.symptom,
        "unknown",
        "inspect",
        "undecided",
        signs[0].time,
        signs[0],
        tuple(signs[:16]),
        ("both ends of a broken path complain",),
    )


def _only_odd(ordered: Sequence[Suspicion], seen: Episode, job: JobPlaces) -> Cause | None:
    """Return the only node whose settings differ, if nothing else points at any: to be examined."""
    odd = breaking_settings(seen, job)
    if len(odd) != 1 or not seen.of("waiting", "broken", "suspect"):
        return None
    ((node, own),) = odd.items()
    if [each.node for each in ordered if each.weight >= _CONFIG_CHECK] != [node]:
        return None
    rule = own[0].rule
    return Cause(
        (node,),
        rule.symptom,
        rule.domain,
        "inspect",
        "undecided",
        own[0].time,
        own[0],
        tuple(own),
        ("nothing but its settings points at it",),
    )


def _only_different(ordered: Sequence[Suspicion]) -> Cause | None:
    """Return the only node that statistics find, if all else points elsewhere half as much or less.

    One sign that says who differs is not enough to isolate it, and too much to name nobody.
    """
    if not ordered or ordered[0].weight < 1.0:
        return None
    if len(ordered) > 1 and ordered[0].weight < TIMES_THE_NEXT * ordered[1].weight:
        return None
    best = ordered[0]
    findings = [each for each in best.speaks_for if each.evidence.kind == "finding"]
    if not findings:
        return None
    main = findings[0]
    return Cause(
        (best.node,),
        main.rule.symptom,
        main.rule.domain,
        "inspect",
        "undecided",
        main.time,
        main,
        tuple(sorted(best.speaks_for, key=lambda each: each.time)),
        ("no second sign points at it",),
    )


def _undecided(ordered: Sequence[Suspicion], seen: Episode) -> Cause | None:
    """Return a cause that names nobody; the job suffers, and it is open of whom."""
    signs: Sequence[Observation] = seen.of("waiting", "broken") or list(seen.observations)
    if not signs:
        return None
    against = tuple(
        f"{each.node}: {', '.join(each.reasons)}" for each in ordered[:4] if each.reasons
    )
    main = signs[0]
    return Cause(
        (),
        main.rule.symptom,
        "unknown",
        "inspect",
        "undecided",
        main.time,
        main,
        tuple(signs[:16]),
        against or ("nothing points at a single node",),
    )
