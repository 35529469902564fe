"""What Prometheus knows of the end of a job: its diagnosis, and how far it came."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from peerwatch_common.promql import quoted
from peerwatch_responder.retry.adviser import Incident
from peerwatch_responder.retry.assessment.diagnosis import Diagnosis
from peerwatch_responder.server import ServerError, get_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peerwatch_responder.retry.reading.facts import JobFacts
    from peerwatch_responder.settings.config import ServerConfig

# A job that hangs is diagnosed minutes before it is ended, and its series end with it.
_WINDOW = "1h"
_BY = "node, class, domain, confidence, action"
_DIAGNOSIS = (
    "max by ({by}) (max_over_time(peerwatch_diagnosis{{job_id={job}}}[{window}])) "
    "* on (node, class) group_left () max by (node, class) "
    '(max_over_time(peerwatch_diagnosis_info{{job_id={job}, root="1"}}[{window}]))'
)
_STEPS = "max(max_over_time(rank_steps_total{{job_id={job}}}[{window}]))"
_ORDER = {"sure": 0, "likely": 1}
# Prometheus' default scrape_interval.
_LATE_SECONDS = 60.0


class PrometheusIncident:
    """Asks one Prometheus about jobs.

    Parameters
    ----------
    server
        Where it is.
    clock
        Unix time in seconds.
    """

    def __init__(self, server: ServerConfig, clock: Callable[[], float] = time.time) -> None:
        self._server = server
        self._clock = clock

    def __call__(self, facts: JobFacts) -> Incident:
        """Return what is known of a job; what could not be learnt is a note."""
        if not facts.job_id:
            return Incident(notes=("Prometheus was not asked: the job's id is unknown.",))
        now = self._clock()
        # What was published at the end may have been scraped a little after it.
        at = now if facts.ended is None else min(now, facts.ended + _LATE_SECONDS)
        words = {"job": quoted(facts.job_id), "by": _BY, "window": _WINDOW}
        try:
            causes = self._query(_DIAGNOSIS.format(**words), at)
            steps = self._query(_STEPS.format(**words), at)
            diagnosis = diagnosis_in([each["metric"] for each in causes])
            values = [float(each["value"][1]) for each in steps]
        except ServerError as error:
            return Incident(notes=(f"Prometheus was not asked: {error}.",))
        except (TypeError, KeyError, ValueError, IndexError, AttributeError):
            text = f"{self._server.url}: is no Prometheus: no result of a query"
            return Incident(notes=(text,))
        counted = [int(each) for each in values if math.isfinite(each)]
        return Incident(diagnosis, max(counted, default=None))

    def _query(self, query: str, at: float) -> Sequence[Any]:
        answer = get_json(self._server, "/api/v1/query", {"query": query, "time": f"{at:.3f}"})
        rows = answer["data"]["result"]
        if not isinstance(rows, list):
            raise TypeError
        return rows


def diagnosis_in(labels: Sequence[dict[str, str]]) -> Diagnosis | None:
    """Return the surest root among the labels of ``peerwatch_diagnosis``; None: none is sure."""
    sure = [each for each in labels if each.get("confidence") in _ORDER]
    if not sure:
        return None
    first = min(sure, key=lambda each: (_ORDER[each["confidence"]], each.get("node", "")))
    same = ("class", "domain", "confidence", "action")
    nodes = {
        each["node"]
        for each in sure
        if each.get("node") and all(each.get(name) == first.get(name) for name in same)
    }
    return Diagnosis(
        first.get("class", ""),
        first.get("domain", ""),
        first["confidence"],
        first.get("action", ""),
        tuple(sorted(nodes)),
    )
