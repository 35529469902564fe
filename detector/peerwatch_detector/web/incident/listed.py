"""The incidents of the last days, from the findings that were published."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from peerwatch_common.metrics.label_length import shortened
from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading.history_reader import History
from peerwatch_detector.web.ago import ago, date
from peerwatch_detector.web.incident import queries
from peerwatch_detector.web.incident.address import Address, begun_of
from peerwatch_detector.web.incident.record import Labels, rows_of

# How far back: a day, a week, a month.
CHOICES = {"1": "a day", "7": "a week", "30": "a month"}
# Findings of a job that began within so many seconds of each other are one incident: as long as an
# incident is shown after its begin (address.py).
_APART_SECONDS = 900.0
# Incidents in the list, and nodes and metrics in a row. Chosen: a month of six a day; a line each.
_MOST = 200
_NAMED = 3


@dataclass(frozen=True, slots=True)
class ListedIncident:
    """One incident of the list."""

    job_id: str
    when: str
    begun: str
    ago: str
    nodes: tuple[str, ...]
    metrics: tuple[str, ...]
    critical: bool
    standing: bool
    summary: str


@dataclass(frozen=True, slots=True)
class IncidentList:
    """Incidents, the last first; ``note`` says why there are none."""

    incidents: tuple[ListedIncident, ...] = ()
    left_out: int = 0
    note: str = ""

    @property
    def standing(self) -> int:
        """How many of them stand."""
        return sum(each.standing for each in self.incidents)


def listed(history: History, days: int, now: float) -> IncidentList:
    """Return the incidents of the last days."""
    try:
        answers = history.at(queries.listed(days * 86400.0), now)
    except ReadError as error:
        return IncidentList(note=str(error))
    refused = [str(each) for each in answers.values() if isinstance(each, ReadError)]
    standing = {_key(labels) for labels, _ in rows_of(answers, "standing")}
    summaries: dict[tuple[str, str], str] = {}
    for labels, _ in rows_of(answers, "roots"):
        whose = labels.get("job_id", ""), labels.get("node", "")
        summaries[whose] = labels.get("summary", "")
    by_job: dict[str, list[tuple[float, Labels]]] = {}
    for labels, since in rows_of(answers, "since"):
        by_job.setdefault(labels.get("job_id", ""), []).append((since, labels))
    found = [
        (group[0][0], _incident(job_id, group, standing, summaries, now))
        for job_id, rows in by_job.items()
        for group in _together(rows)
        if begun_of(since for since, _ in group) is not None
    ]
    found.sort(key=lambda each: -each[0])
    shown = tuple(incident for _, incident in found[:_MOST])
    return IncidentList(shown, len(found) - len(shown), "; ".join(refused))


def _key(labels: Labels) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in ("job_id", "node", "gpu", "metric", "method"))


def _together(rows: Iterable[tuple[float, Labels]]) -> list[list[tuple[float, Labels]]]:
    groups: list[list[tuple[float, Labels]]] = []
    for since, labels in sorted(rows, key=lambda row: row[0]):
        if groups and since - groups[-1][-1][0] <= _APART_SECONDS:
            groups[-1].append((since, labels))
        else:
            groups.append([(since, labels)])
    return groups


def _incident(
    job_id: str,
    group: list[tuple[float, Labels]],
    standing: set[tuple[str, ...]],
    summaries: dict[tuple[str, str], str],
    now: float,
) -> ListedIncident:
    begun = int(group[0][0])
    labels = [labels for _, labels in group]
    nodes = dict.fromkeys(each.get("node", "") for each in labels)
    told = [text for node in nodes if (text := summaries.get((job_id, node)))]
    return ListedIncident(
        shortened(job_id),
        Address(job_id, begun).when,
        date(begun),
        ago(now - begun),
        tuple(shortened(node) for node in nodes)[:_NAMED],
        tuple(dict.fromkeys(each.get("metric", "") for each in labels))[:_NAMED],
        any(each.get("severity") == "critical" for each in labels),
        any(_key(each) in standing for each in labels),
        next(iter(told), ""),
    )
