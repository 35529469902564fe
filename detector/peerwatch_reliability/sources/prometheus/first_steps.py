"""When attempts made progress: the first step that a job's rank 0 finished after the start."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from peerwatch_common.promql import any_of, selected
from peerwatch_reliability.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from peerwatch_reliability.sources.prometheus.server import Server

_MINUTE = 60.0
# What takes longer to start is not measured: chosen, large jobs start within minutes.
_LONGEST_SECONDS = 3600.0
# The exporter's usual scrape interval.
_STEP = "15s"
# Jobs in one query, and queries at a time: what is left is asked for the next time. Chosen: a query
# stays some kilobytes long, and as many take some 12 s (docs/reliability.md, of evidence).
_JOBS = 100
_MOST_QUERIES = 1000
# After it nothing changes any more: chosen, twice the look-back of a query.
_FINAL_SECONDS = 600.0

Start = tuple[int, str]


class FirstSteps(NamedTuple):
    """What was measured.

    Parameters
    ----------
    by_start
        Unix time of the first step, by the minute of an attempt's start and its job.
    missing
        What could not be known, a sentence each.
    """

    by_start: Mapping[Start, float]
    missing: tuple[str, ...]


def start_of(job_id: str, start: float) -> Start:
    """Return by what the first step of an attempt is found."""
    return int(start // _MINUTE), job_id


class FirstStepReader:
    """Reads first steps, each once.

    Parameters
    ----------
    server
        The Prometheus.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        # None: there was none.
        self._known: dict[Start, float | None] = {}

    def read(self, starts: Iterable[tuple[str, float]], now: float) -> FirstSteps:
        """Return the first steps of attempts, the newest of them first.

        Parameters
        ----------
        starts
            Job and start of each, in Unix seconds.
        now
            Unix seconds.
        """
        wanted = {start_of(*each) for each in starts}
        self._known = {each: step for each, step in self._known.items() if each in wanted}
        by_minute: defaultdict[int, list[str]] = defaultdict(list)
        for minute, job_id in sorted(wanted - self._known.keys(), reverse=True):
            by_minute[minute].append(job_id)
        asked = [
            (minute, jobs[first : first + _JOBS])
            for minute, jobs in by_minute.items()
            for first in range(0, len(jobs), _JOBS)
        ]
        left = sum(len(jobs) for _, jobs in asked[_MOST_QUERIES:])
        del asked[_MOST_QUERIES:]
        queries = [
            (self._query(minute, jobs), min(minute * _MINUTE + _LONGEST_SECONDS, now))
            for minute, jobs in asked
        ]
        errors = []
        for (minute, jobs), answer in zip(asked, self._server.at_all(queries), strict=True):
            if isinstance(answer, SourceError):
                errors.append(str(answer))
                continue
            steps = {each.labels.get("job_id", ""): each.samples[0][1] for each in answer}
            is_final = minute * _MINUTE + _LONGEST_SECONDS + _FINAL_SECONDS < now
            for job_id in jobs:
                step = steps.get(job_id)
                if is_final or step is not None:
                    self._known[minute, job_id] = step
        found = {each: step for each, step in self._known.items() if step is not None}
        missing = []
        if errors:
            missing.append(f"{len(errors)} queries about first steps failed ({errors[0]})")
        if left:
            missing.append(f"the first steps of {left} older attempts have not been asked for yet")
        return FirstSteps(found, tuple(missing))

    def _query(self, minute: int, jobs: Iterable[str]) -> str:
        series = selected(
            "rank_last_step_timestamp_seconds",
            self._server.config.selector,
            'rank="0"',
            any_of("job_id", jobs),
        )
        return (
            f"min by (job_id) (min_over_time(({series} > {minute * _MINUTE:.0f})"
            f"[{_LONGEST_SECONDS:.0f}s:{_STEP}]))"
        )
