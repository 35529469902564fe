"""Faults that are no node's: the training program, the storage that it uses, the scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from peerwatch_detector.diagnosis.root.algorithm.episode import CLOCK_SECONDS, Episode
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.taxonomy.cause import Cause, by_node, node_of
from peerwatch_detector.diagnosis.root.taxonomy.rule import Observation

_NEVER = float("inf")


def first_complaint(episode: Episode) -> float:
    """Return when a rank first complained about another; infinity if none did."""
    return min((each.time for each in episode.of("waiting", "broken")), default=_NEVER)


def program_error(episode: Episode, job: JobPlaces) -> Cause | None:
    """Return the error of the program that the job failed of, if that came first.

    Ranks end with exceptions, too, because another rank was lost: those come after the first
    complaint about a connection.
    """
    latest = first_complaint(episode) + CLOCK_SECONDS
    leading = [each for each in episode.of("user") if each.time <= latest]
    if not leading:
        return None
    definite = [each for each in leading if not each.rule.ambiguous]
    if not definite and (repeated := repeats(leading, episode, job)):
        return repeated
    main = (definite or leading)[0]
    same = [each for each in leading if each.rule is main.rule]
    rule = main.rule
    everywhere = 2 * len(_who(same)) >= max(len(job.ranks), len(job.nodes), 1)
    return Cause(
        (),
        rule.symptom,
        "user",
        rule.action,
        "sure" if everywhere and definite else "likely",
        main.time,
        main,
        tuple(leading),
        () if definite else ("a GPU or memory at fault can show the same",),
    )


def repeats(leading: Sequence[Observation], episode: Episode, job: JobPlaces) -> Cause | None:
    """Return the GPU that shows in several jobs what is a mistake of the program in one."""
    nodes = by_node(leading, job)
    if len(nodes) != 1:
        return None
    (node, own), *_ = nodes.items()
    job_id = own[0].evidence.job_id
    gpus = {each.evidence.gpu for each in own if each.evidence.gpu}
    before = [
        each
        for each in episode.earlier
        if each.rule.ambiguous
        and node_of(each, job) == node
        and (not gpus or not each.evidence.gpu or each.evidence.gpu in gpus)
        # XIDs have no job: those of before this one was started are another's.
        and (each.evidence.job_id not in ("", job_id) or each.time < episode.started)
    ]
    if not before:
        return None
    main = own[0]
    return Cause(
        (node,),
        "gpu_unavailable",
        "hardware",
        "drain",
        "likely",
        main.time,
        main,
        (*own, *before),
        ("in one job alone it would be a mistake of the program",),
    )


def storage_error(episode: Episode, job: JobPlaces) -> Cause | None:
    """Return the storage that the job failed of, if that came before complaints and exceptions."""
    latest = min(
        [first_complaint(episode)] + [each.time for each in episode.of("user")], default=_NEVER
    )
    leading = [each for each in episode.of("storage") if each.time <= latest + CLOCK_SECONDS]
    if not leading:
        return None
    main = leading[0]
    nodes = by_node(leading, job)
    from_kernel = any(each.evidence.kind in ("kernel", "host") for each in leading)
    # A mount that fails on one node of many is that node's; a rank alone may have a file alone.
    own = len(nodes) == 1 and len(job.nodes) > 3 and from_kernel and main.rule.action == "restart"
    # Those that show it later wait for the same server.
    own = own and len(by_node(episode.of("storage"), job)) == 1
    named = own or _has_a_disk_full(main, nodes, episode, job)
    return Cause(
        tuple(nodes) if named else (),
        main.rule.symptom,
        main.rule.domain,
        "isolate" if own else main.rule.action,
        "likely" if own or len(nodes) < 2 else "sure",
        main.time,
        main,
        tuple(leading),
    )


def _has_a_disk_full(
    main: Observation, nodes: Mapping[str, list[Observation]], episode: Episode, job: JobPlaces
) -> bool:
    """Whether a file system that is full is one node's own: it is named, and not isolated.

    Of a shared one, the rank that writes for all says so as well, which is mostly the first: a
    node's own disk is full for several of its ranks, for one that writes for nobody else, or for
    the node itself.
    """
    if main.rule.name != "storage_full" or len(nodes) != 1 or len(job.nodes) < 2:
        return False
    ((node, seen),) = nodes.items()
    ranks = {each.evidence.rank for each in seen} - {None}
    full = any(
        each.evidence.kind in ("host", "kernel")
        and node_of(each, job) == node
        and "full" in each.evidence.name
        for each in (*episode.earlier, *episode.observations)
    )
    return full or len(ranks) > 1 or (bool(ranks) and 0 not in ranks)


def platform_end(episode: Episode) -> Cause | None:
    """Return the scheduler's decision to end the job, if nothing had gone wrong before."""
    ends = episode.of("platform")
    if not ends:
        return None
    main = ends[0]
    signs = episode.of("critical", "weak", "user", "storage", "suspect", "waiting", "broken")
    if any(each.time < main.time - CLOCK_SECONDS for each in signs):
        return None
    rule = main.rule
    return Cause((), rule.symptom, "none", "none", "sure", main.time, main, tuple(ends))


def _who(observations: Sequence[Observation]) -> set[object]:
    """Return the ranks that observations are about, or their nodes where ranks are not known."""
    return {
        each.evidence.node if each.evidence.rank is None else each.evidence.rank
        for each in observations
    }
