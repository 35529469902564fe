"""The root of a running or failed job, from what Prometheus holds about it."""

from __future__ import annotations

from dataclasses import replace

from peerwatch_detector.diagnosis.root.algorithm import Root, find_root
from peerwatch_detector.diagnosis.root.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.live import evidence_of, job_places
from peerwatch_detector.diagnosis.root.live_queries import QUERIES
from peerwatch_detector.errors import ReadError, ReadFailure
from peerwatch_detector.frame import Series
from peerwatch_detector.reading import promql
from peerwatch_detector.reading.reader import Reader
from peerwatch_detector.reading.statistics import REFUSALS

# What one query asks for may be too much, or of an older server; the others are answered.
_OF_THE_QUERY: frozenset[ReadFailure] = REFUSALS | {"too_large", "malformed"}


def root_of_job(
    reader: Reader, job_id: str, now: float, at: float | None
) -> tuple[Root, JobPlaces]:
    """Ask for everything about a job and its nodes, and find the root of its failure.

    Parameters
    ----------
    reader
        Answers the queries.
    job_id
        The job.
    now
        Unix time, where ``at`` is None.
    at
        The moment of which it is asked; None for the present.

    Returns
    -------
    tuple[Root, JobPlaces]
        The answer, which names the queries that were not answered; who is who in the job.

    Raises
    ------
    ReadError
        If the server does not answer at all.
    """
    samples: dict[str, list[Series]] = {}
    unanswered: list[str] = []
    for name, query in QUERIES.items():
        try:
            samples[name] = reader.instant(promql.job_query(query, job_id), at)
        except ReadError as error:
            if error.reason not in _OF_THE_QUERY:
                raise
            unanswered.append(name)
    moment = now if at is None else at
    job = job_places(samples)
    evidence = evidence_of(samples, moment, job_id)
    root = find_root(job, evidence, job_id=job_id, until=moment)
    if not unanswered:
        return root, job
    text = f"Prometheus did not answer the queries for {', '.join(unanswered)}."
    return replace(root, missing=(*root.missing, text)), job
