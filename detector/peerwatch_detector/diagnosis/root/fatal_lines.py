"""A fatal line in a log names its node at once, before anything else of the job is known.

MegaScale (NSDI'24) filters the output of ranks for keywords in real time and acts on them. What
counts here are errors that name their host by themselves (CriticalError of Aegis' Algorithm 1);
those of the program, of storage, of other ranks, cascades and noise never do: the root of the
failure weighs them once the job stands. A line that the job went on after did not end it, and one
that many nodes write is about what they share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from peerwatch_detector.diagnosis.diagnoser import Samples
from peerwatch_detector.diagnosis.root.algorithm.critical import critical_errors
from peerwatch_detector.diagnosis.root.algorithm.episode import Episode
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.live.gathering import evidence_of, job_places
from peerwatch_detector.diagnosis.root.live.queries import WINDOW_SECONDS
from peerwatch_detector.diagnosis.root.taxonomy.cause import Cause, by_node
from peerwatch_detector.diagnosis.root.taxonomy.rule import Observation
from peerwatch_detector.diagnosis.root.taxonomy.rules import rule_book
from peerwatch_detector.diagnosis.verdict import Confidence, Verdict

# Of a job whose steps are not known it stands for so long (Meta: a check that fired up to 10
# minutes before); of one that stands, for as long as it does.
_RECENT_SECONDS = 600.0
# Ranks end the step that they are in, and exporters are scraped every 15 s: only then is it known
# whether the job goes on.
_LAST_STEP_SECONDS, _LEAST_AGE_SECONDS = 10.0, 20.0


def _fatal(kind: str) -> str:
    """Return the signatures whose lines name their host, as a matcher of PromQL."""
    names = sorted(
        name
        for key, rule in rule_book().by_key.items()
        if rule.role == "critical" and key.startswith(f"{kind}:")
        if (name := key.partition(":")[2]) != "*"
    )
    return "|".join(names)


class FatalLineDiagnoser:
    """Names the node of a line that says that its host failed.

    Parameters
    ----------
    job_id
        The scheduler's id of the job.
    """

    name: ClassVar[str] = "fatal_lines"
    queries: ClassVar[Mapping[str, str]] = {
        "log": (
            "max by (node, rank, class, signature) (log_event_last_timestamp_seconds{ {{- job -}} ,"
            f'signature=~"{_fatal("log")}"}}) > time() - {WINDOW_SECONDS}'
        ),
        "kernel": (
            "max by (cluster, node, class, signature) (log_event_last_timestamp_seconds"
            f'{{job_id="",signature=~"{_fatal("kernel")}"}}) > time() - {WINDOW_SECONDS} '
            "and on (cluster, node) group by (cluster, node) (rank_info{ {{- job -}} })"
        ),
        # As the diagnoser of processes asks, so it is read once.
        "ranks": "max by (node, rank, world_size) (rank_info{ {{ job }} })",
        "step": "max(rank_last_step_timestamp_seconds{ {{- job -}} })",
    }

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id

    def diagnose(self, samples: Samples, now: float) -> Sequence[Verdict]:
        """Return a verdict on each node that wrote one, or one on what many of them share."""
        asked = {name: samples.get(name, ()) for name in ("log", "kernel", "ranks")}
        job = job_places(asked)
        last_step = max(
            (float(each.values[-1]) for each in samples.get("step", ()) if len(each.values)),
            default=math.nan,
        )
        seen = [
            Observation(each, rule)
            for each in evidence_of(asked, now, self._job_id)
            if (rule := rule_book().rule_of(each)) is not None and rule.role == "critical"
            if _stands(each.time, last_step, now)
        ]
        return tuple(self._verdicts(seen, job, last_step))

    def _verdicts(
        self, seen: Sequence[Observation], job: JobPlaces, last_step: float
    ) -> Iterator[Verdict]:
        if not seen:
            return
        known = Episode(seen[0].time, tuple(seen))
        for cause in critical_errors(known, job):
            survived = last_step > cause.time + _LAST_STEP_SECONDS
            yield self._verdict(cause, "undecided" if survived or not cause.nodes else "likely")
        if not by_node(seen, job):
            first = seen[0]
            rule = first.rule
            whose = (rule.symptom, rule.domain, rule.action)
            nobodys = Cause((), *whose, "undecided", first.time, first, (first,))
            yield self._verdict(nobodys, "undecided")

    def _verdict(self, cause: Cause, confidence: Confidence) -> Verdict:
        decided = confidence != "undecided"
        return Verdict(
            self._job_id,
            cause.nodes[0] if cause.nodes else "",
            cause.main.evidence.rank if cause.nodes else None,
            "fatal_line",
            cause.domain,
            confidence,
            cause.action if decided else "inspect",
            _summary(cause, decided=decided),
            (),
            cause.time,
        )


def _stands(time: float, last_step: float, now: float) -> bool:
    """Whether a line is of now, or of what the job has stood since; and old enough to tell."""
    if math.isnan(last_step):
        return now - time <= _RECENT_SECONDS
    old_enough = now - time >= _LEAST_AGE_SECONDS
    return old_enough and (now - time <= _RECENT_SECONDS or last_step <= time + _LAST_STEP_SECONDS)


def _summary(cause: Cause, *, decided: bool) -> str:
    evidence, rule = cause.main.evidence, cause.main.rule
    what = f"a fatal error ({evidence.name.replace('_', ' ')})"
    if cause.place:
        return f"{cause.place} logged {what} at about the same time; that fails, not each of them"
    if not cause.nodes:
        return f"a rank wrote {what}; which of the job's nodes it runs on its line does not say"
    (node,) = cause.nodes
    who = f"rank {evidence.rank} on node {node} wrote"
    if evidence.kind == "kernel":
        who = f"the kernel log of node {node} has"
    elif evidence.rank is None:
        who = f"the job's log on node {node} has"
    on = "" if decided else "; the job went on after it"
    return f"{who} {what}: the node {rule.says}{on}"
