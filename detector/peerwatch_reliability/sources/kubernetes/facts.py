"""What kube-state-metrics told of a day, as facts about pods, jobs and nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from sys import intern
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_reliability.sources.prometheus.server import Series

JobKey = tuple[str, str]


@dataclass(slots=True)
class PodFacts:
    """What is known of a pod; times are Unix seconds, None: not known or not yet.

    Parameters
    ----------
    namespace, name
        Of the pod.
    gpus
        How many each of its containers requests.
    node
        Where it was put; empty: nowhere yet.
    owner
        Kind and name of its controller; empty: none.
    created, start, completion, deletion
        When it was made, taken up by its node, when its last container ended, and when its
        deletion is due.
    phase
        Its last.
    reasons
        Why it ended: of its status and its disruption.
    terminated
        By container: when it was last seen ended, and why; it may begin again in its pod.
    seen
        When it was last scraped.
    starts
        When its containers began.
    ends
        When containers that began again had ended, and why.
    """

    namespace: str
    name: str
    gpus: dict[str, int] = field(default_factory=dict)
    node: str = ""
    owner: tuple[str, str] = ("", "")
    created: float | None = None
    start: float | None = None
    completion: float | None = None
    deletion: float | None = None
    phase: str = ""
    reasons: set[str] = field(default_factory=set)
    terminated: dict[str, tuple[float, frozenset[str]]] = field(default_factory=dict)
    seen: float = 0.0
    starts: set[float] = field(default_factory=set)
    ends: dict[float, str] = field(default_factory=dict)

    @property
    def why(self) -> set[str]:
        """Why it ended, as it and each of its containers say last."""
        return self.reasons.union(*(last for _, last in self.terminated.values()))

    def note_terminated(self, container: str, time: float, reason: str) -> None:
        """Add that a container was last seen ended at a time."""
        known, reasons = self.terminated.get(container, (time, frozenset[str]()))
        if time >= known:
            together = reasons if time == known else frozenset()
            self.terminated[container] = time, together | {reason}

    def update(self, later: PodFacts) -> None:
        """Add what a later day knows."""
        self.gpus.update(later.gpus)
        self.node = later.node or self.node
        self.owner = later.owner if later.owner[0] else self.owner
        self.phase = later.phase or self.phase
        for name in ("created", "start", "completion", "deletion"):
            if (known := getattr(later, name)) is not None:
                setattr(self, name, known)
        self.seen = max(self.seen, later.seen)
        self.reasons |= later.reasons
        self.terminated.update(later.terminated)
        self.starts |= later.starts
        self.ends.update(later.ends)


@dataclass(slots=True)
class JobFacts:
    """What is known of a Job: when each that had its name was made, and its own controller."""

    created: set[float] = field(default_factory=set)
    owner: tuple[str, str] = ("", "")
    is_timeout: bool = False

    def update(self, later: JobFacts) -> None:
        """Add what a later day knows."""
        self.created |= later.created
        self.owner = later.owner if later.owner[0] else self.owner
        self.is_timeout |= later.is_timeout


class NodeState(NamedTuple):
    """A minute at which a node was not ready, or cordoned; Unix seconds."""

    node: str
    kind: str
    time: float


@dataclass(slots=True)
class Facts:
    """All facts of a span of time.

    Parameters
    ----------
    pods, jobs
        By uid, and by namespace and name.
    states
        Minutes at which nodes were out.
    covered_seconds
        For how long there were series of nodes.
    is_foreign
        Whether labels of the scraped target have taken the place of the pods' own.
    """

    pods: dict[str, PodFacts] = field(default_factory=dict)
    jobs: dict[JobKey, JobFacts] = field(default_factory=dict)
    states: list[NodeState] = field(default_factory=list)
    covered_seconds: float = 0.0
    is_foreign: bool = False

    def update(self, later: Facts) -> None:
        """Add what a later day knows."""
        for uid, pod in later.pods.items():
            known = self.pods.setdefault(uid, PodFacts(pod.namespace, pod.name))
            known.update(pod)
        for key, job in later.jobs.items():
            self.jobs.setdefault(key, JobFacts()).update(job)
        self.states += later.states
        self.covered_seconds += later.covered_seconds
        self.is_foreign |= later.is_foreign


def add_facts(facts: Facts, answer: Iterable[Series]) -> None:
    """Add the answer to ``Queries.facts``."""
    # Which containers have GPUs is known first.
    for series in sorted(answer, key=lambda each: each.labels.get("kind") != "gpus"):
        labels, value = series.labels, series.samples[0][1]
        kind = labels.get("kind", "")
        if kind == "cover":
            facts.covered_seconds += value
        elif kind == "foreign":
            facts.is_foreign = value > 0
        elif kind.startswith("job_"):
            key = labels.get("namespace", ""), labels.get("job_name", "")
            _add_to_job(facts.jobs.setdefault(key, JobFacts()), kind, series)
        else:
            _add_to_pod(_pod(facts, series), kind, series)


def add_times(facts: Facts, starts: Iterable[Series], ends: Iterable[Series]) -> None:
    """Add the answers to ``Queries.starts`` and ``Queries.ends``; of containers with GPUs."""
    for series in starts:
        if (pod := _with_gpus(facts, series)) is not None:
            pod.starts.update(value for _, value in series.samples)
    for series in ends:
        if (pod := _with_gpus(facts, series)) is not None:
            reason = intern(series.labels.get("reason", ""))
            pod.ends.update((value, reason) for _, value in series.samples)


def add_states(facts: Facts, answer: Iterable[Series]) -> None:
    """Add the answer to ``Queries.nodes``."""
    for series in answer:
        node, kind = (intern(series.labels.get(name, "")) for name in ("node", "kind"))
        if node:
            facts.states += [NodeState(node, kind, time) for time, _ in series.samples]


def _pod(facts: Facts, series: Series) -> PodFacts:
    labels = series.labels
    uid = labels.get("uid", "")
    if uid not in facts.pods:
        facts.pods[uid] = PodFacts(intern(labels.get("namespace", "")), labels.get("pod", ""))
    return facts.pods[uid]


def _with_gpus(facts: Facts, series: Series) -> PodFacts | None:
    pod = facts.pods.get(series.labels.get("uid", ""))
    return pod if pod is not None and pod.gpus.get(series.labels.get("container", "")) else None


def _add_to_pod(pod: PodFacts, kind: str, series: Series) -> None:
    labels, value = series.labels, series.samples[0][1]
    if kind == "gpus":
        pod.gpus[intern(labels.get("container", ""))] = int(value)
    elif kind == "info":
        # Until it is put somewhere it has another series.
        pod.node = intern(labels.get("node", "")) or pod.node
    elif kind == "owner":
        pod.owner = intern(labels.get("owner_kind", "")), intern(labels.get("owner_name", ""))
    elif kind == "phase":
        pod.phase = intern(labels.get("phase", ""))
    elif kind in {"reason", "disruption"}:
        pod.reasons.add(intern(labels.get("reason", "")))
    elif kind == "terminated":
        if pod.gpus.get(container := intern(labels.get("container", ""))):
            pod.note_terminated(container, value, intern(labels.get("reason", "")))
    elif kind in {"created", "start", "completion", "deletion", "seen"}:
        setattr(pod, kind, value)


def _add_to_job(job: JobFacts, kind: str, series: Series) -> None:
    if kind in {"job_first", "job_created"}:
        job.created.add(series.samples[0][1])
    elif kind == "job_owner":
        labels = series.labels
        job.owner = intern(labels.get("owner_kind", "")), intern(labels.get("owner_name", ""))
    else:
        job.is_timeout = True
