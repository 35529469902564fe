"""The root of a running or failed job, from what Prometheus holds about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from peerwatch_detector.diagnosis.diagnoser import Samples
from peerwatch_detector.diagnosis.root.algorithm.algorithm import Root, find_root
from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.live.gathering import evidence_of, job_places, survived_until
from peerwatch_detector.diagnosis.root.live.pings import ping_table_of
from peerwatch_detector.diagnosis.root.live.queries import QUERIES
from peerwatch_detector.diagnosis.root.taxonomy.cause import Cause
from peerwatch_detector.errors import ReadError, ReadFailure
from peerwatch_detector.frame import PartialAnswer, Series
from peerwatch_detector.reading import promql
from peerwatch_detector.reading.statistics import REFUSALS

# What one query asks for may be too much, too slow, or of an older server; others are answered.
_OF_THE_QUERY: frozenset[ReadFailure] = REFUSALS | {"too_large", "malformed", "timeout"}
# Lines of what ends a job, if it is the reason for it: a job that goes on has survived them.
_ENDING_CLASSES = frozenset("DSUP")
# Chosen: the update of an exporter, with its image, is over by then; the detector's own finding
# knows more, and is earlier.
_ABSENT_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class LiveRoot:
    """What was known about a job at one moment, and what it failed of.

    Parameters
    ----------
    job_id
        The job.
    time
        Unix time, on the server's clock.
    root
        The answer; without causes if nothing is wrong.
    places
        Who is who in the job.
    evidence
        Everything that was observed, in order of time, also what the answer left out.
    unanswered
        Names of the queries that were not answered.
    """

    job_id: str
    time: float
    root: Root
    places: JobPlaces
    evidence: tuple[Evidence, ...]
    unanswered: tuple[str, ...] = ()


def ask_root(
    answer: Callable[[str], Sequence[Series]],
    job_id: str,
    now: float,
    *,
    at_now: bool = True,
    own: Samples = MappingProxyType({}),
) -> LiveRoot:
    """Ask for everything about a job and its nodes, and find the root of its failure.

    Parameters
    ----------
    answer
        Answers a query of PromQL with one sample of each series.
    job_id
        The job.
    now
        Unix time of which it is asked.
    at_now
        Whether the server's clock says what the time is, as far as it does; ``now`` otherwise.
    own
        Answers that are known and need not be asked, by name.

    Returns
    -------
    LiveRoot
        The answer, which names the queries that were not answered.

    Raises
    ------
    ReadError
        If the server does not answer at all.
    """
    samples: dict[str, Sequence[Series]] = {}
    unanswered: list[str] = []
    asked = {name: query for name, query in QUERIES.items() if name not in own}
    for name, query in asked.items():
        try:
            samples[name] = answer(promql.job_query(query, job_id))
        except ReadError as error:
            if error.reason not in _OF_THE_QUERY:
                raise
            unanswered.append(name)
    if len(unanswered) == len(asked):
        raise ReadError("timeout", f"No query about the root of job {job_id!r} was answered.")
    moment = _server_time(samples, now) if at_now else now
    return root_of({**samples, **own}, moment, job_id, unanswered)


def root_of(samples: Samples, now: float, job_id: str, unanswered: Sequence[str] = ()) -> LiveRoot:
    """Find the root of a job's failure in the answers to ``QUERIES``.

    Parameters
    ----------
    samples
        The answers by name; what nobody publishes is an empty sequence.
    now
        Unix time at which they were evaluated.
    job_id
        The job.
    unanswered
        Names of the queries that were not answered.
    """
    job, evidence = job_places(samples), evidence_of(samples, now, job_id)
    survived = survived_until(samples, now)
    weighed = _of_this_failure(evidence, survived, now)
    pings = ping_table_of(samples)
    root = find_root(job, weighed, job_id=job_id, until=now, pings=pings)
    if survived == now:
        root = _that_works(root)
    if unread := _unread(samples):
        root = replace(root, missing=(*root.missing, *unread))
    if parts := [name for name, found in samples.items() if isinstance(found, PartialAnswer)]:
        text = f"Prometheus left out some of the series of {', '.join(parts)}."
        root = replace(root, missing=(*root.missing, text))
    if unanswered:
        text = f"Prometheus did not answer the queries for {', '.join(unanswered)}."
        root = replace(root, missing=(*root.missing, text))
    return LiveRoot(job_id, now, root, job, evidence, tuple(unanswered))


def _that_works(root: Root) -> Root:
    """Leave out what is open about a job that makes steps: it would say that the job stands.

    The only node that differs from its peers is told all the same: the page about it begins with
    what to do.
    """
    told = tuple(cause for cause in root.causes if _holds_of_a_job_that_works(cause))
    if all(cause.is_suspicion for cause in told):
        # Checks that need idle nodes are no way to examine one of a job that goes on.
        root = replace(root, checks=())
    if not told:
        root = replace(root, considered=())
    return replace(root, causes=told, works=True)


def _holds_of_a_job_that_works(cause: Cause) -> bool:
    if cause.is_suspicion:
        # Of a node that cannot be scraped nobody knows whether it differs.
        return cause.main.evidence.name != "absent"
    return cause.confidence != "undecided"


def _of_this_failure(evidence: Sequence[Evidence], survived: float, now: float) -> list[Evidence]:
    """Leave out what does not end this job.

    Lines of ranks that it went on after (exceptions caught, retries that won), and nodes whose
    exporters do not answer, while the job makes steps or not for longer than an update takes.
    """
    gone = {each.node for each in evidence if (each.kind, each.name) == ("finding", "absent")}

    def counts(each: Evidence) -> bool:
        if each.kind == "absent":
            lasts = each.node in gone or now - each.time >= _ABSENT_SECONDS
            return lasts and survived < now
        if each.kind == "log":
            return each.class_name not in _ENDING_CLASSES or each.time >= survived
        return True

    return [each for each in evidence if counts(each)]


def _unread(samples: Samples) -> tuple[str, ...]:
    """Return on how many nodes logs cannot be read, and why, in sentences."""
    return tuple(
        f"Logs on {each.values[-1]:.0f} nodes cannot be read ({reason.replace('_', ' ')})."
        for each in samples.get("unread", ())
        if len(each.values) and (reason := each.labels.get("reason", ""))
    )


def _server_time(samples: Samples, now: float) -> float:
    times = [float(found[0].times[-1]) for found in samples.values() if found]
    return max(times, default=now)
