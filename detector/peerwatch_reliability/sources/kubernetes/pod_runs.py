"""Runs of pods: each begin of a container with GPUs until its end, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from peerwatch_reliability.records import State
    from peerwatch_reliability.sources.kubernetes.facts import PodFacts
    from peerwatch_reliability.sources.kubernetes.outages import LostNodes

# "gone": it was deleted while it ran; whether its job goes on says what that means.
PodEnd = Literal[
    "open", "completed", "failed", "out_of_memory", "node_fail", "preempted", "requeued", "gone"
]
# Reasons of kube_pod_status_reason, of _disruption_reason and of containers. The others, such as
# Error, say no more than that it failed.
_REASONS: dict[str, PodEnd] = {
    "NodeLost": "node_fail",
    # Its node is not there any more.
    "DeletionByPodGC": "node_fail",
    "PreemptionByScheduler": "preempted",
    "OOMKilled": "out_of_memory",
    "DeletionByTaintManager": "requeued",
    "EvictionByEvictionAPI": "requeued",
    "Evicted": "requeued",
    "Shutdown": "requeued",
    "TerminationByKubelet": "requeued",
}
_ORDER: tuple[PodEnd, ...] = ("node_fail", "preempted", "out_of_memory", "requeued")
# What a node that is lost does not say itself: who stopped, but not why.
_BY_LOSS = frozenset({"requeued", "gone"})
_UNKNOWN_REASONS = frozenset({"ContainerStatusUnknown", "Unknown"})
# For so long a series may be late: Prometheus' own look-back.
_UNSEEN_SECONDS = 300.0

STATES: dict[PodEnd, State] = {
    "open": "running",
    "completed": "completed",
    "failed": "failed",
    "out_of_memory": "out_of_memory",
    "node_fail": "node_fail",
    "preempted": "preempted",
    "requeued": "requeued",
    "gone": "cancelled",
}


class PodRun(NamedTuple):
    """A run of a pod; times are Unix seconds.

    Parameters
    ----------
    pod, node, gpus
        Whose it is, where it was, and what it held.
    created
        When the pod was made, or its last run had ended.
    start
        When it began; None: it never did.
    end
        When it ended; None: it has not.
    how
        How it ended.
    """

    pod: str
    node: str
    gpus: int
    created: float
    start: float | None
    end: float | None
    how: PodEnd


def runs_of(pod: PodFacts, lost: LostNodes, until: float) -> list[PodRun]:
    """Return the runs of a pod, in their order.

    Parameters
    ----------
    pod
        It.
    lost
        When nodes were lost.
    until
        Unix seconds up to which there is anything.
    """
    starts = sorted(pod.starts)
    if not starts and pod.start is not None and pod.phase != "Pending":
        starts = [pod.start]
    known = [each for each in (pod.created, pod.start, *starts) if each is not None]
    created = pod.created if pod.created is not None else min(known, default=pod.seen)
    end, how = _end(pod, lost, until)
    gpus = sum(pod.gpus.values())
    found = []
    for number, start in enumerate(starts):
        following = starts[number + 1] if number + 1 < len(starts) else None
        ended = [t for t in pod.ends if t >= start and (following is None or t <= following)]
        of_run: tuple[float | None, PodEnd] = end, how
        if ended or following is not None:
            at = min(ended) if ended else following or start
            of_run = _of_container(pod, at, pod.ends.get(at, ""), lost)
        found.append(PodRun(pod.name, pod.node, gpus, created, start, *of_run))
        created = of_run[0] if of_run[0] is not None else created
    if not found or (found[-1].end is not None and how == "open"):
        # It waits for its first begin, or for the next.
        found.append(PodRun(pod.name, pod.node, gpus, created, None, end, how))
    return found


def _of_container(pod: PodFacts, end: float, reason: str, lost: LostNodes) -> tuple[float, PodEnd]:
    """Return the end of a container that began again in the same pod."""
    if reason == "Completed":
        return end, "completed"
    since = lost.before(pod.node, end)
    if since is not None and (not reason or reason in _UNKNOWN_REASONS):
        return min(since, end), "node_fail"
    return end, _REASONS.get(reason, "failed")


def _end(pod: PodFacts, lost: LostNodes, until: float) -> tuple[float | None, PodEnd]:
    """Return when a pod as a whole ended, and how."""
    is_gone = pod.seen < until - _UNSEEN_SECONDS
    if pod.phase not in {"Succeeded", "Failed"} and not is_gone:
        return None, "open"
    end = pod.completion
    if end is None:
        end = pod.seen if pod.deletion is None else min(pod.deletion, max(pod.seen, pod.start or 0))
    if pod.phase == "Succeeded":
        return end, "completed"
    why = pod.why
    reasons = {_REASONS[each] for each in why if each in _REASONS}
    otherwise: PodEnd = "failed" if pod.phase == "Failed" else "gone"
    how = next((each for each in _ORDER if each in reasons), otherwise)
    is_unknown = how in _BY_LOSS or bool(_UNKNOWN_REASONS & why)
    since = lost.before(pod.node, end) if is_unknown or how == "node_fail" else None
    if since is not None:
        return min(since, end), "node_fail"
    return end, how
