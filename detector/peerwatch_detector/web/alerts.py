"""Critical alerts that fire, beside what the detector found: XIDs, lost GPUs, what rules know.

Prometheus is asked by a thread of its own: views open without it, too.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from peerwatch_detector.errors import ReadError
from peerwatch_detector.jobs import Job
from peerwatch_detector.reading.history_reader import History
from peerwatch_detector.web.incident.links import runbook
from peerwatch_detector.web.incident.record import rows_of

_QUERY = (
    "group by (alertname, job_id, node) "
    '(ALERTS{alertstate="firing",severity="critical",alertname=~"Peerwatch.+"})'
)
# Findings are in the views as what they are.
_FINDING = "PeerwatchFaultyNode"
# As often as rules are evaluated: every 15 s.
_FRESH_SECONDS = 15.0
# A view waits so long for the first answer, and for none after it. Chosen: a person hardly notices.
_PATIENCE_SECONDS = 1.0
# Nodes of an alert that are named: as many as fit in its line.
_NAMED = 4


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert; ``job_id`` and ``node`` are empty where it is of none."""

    name: str
    job_id: str
    node: str


@dataclass(frozen=True, slots=True)
class AlertView:
    """An alert of one name: the first of its nodes, and how many it has beyond them."""

    name: str
    runbook: str
    nodes: tuple[str, ...]
    more: int


class Firing:
    """The critical alerts of one moment.

    Parameters
    ----------
    alerts
        All of them.
    runbooks
        Base address of their runbooks.
    note
        Why nothing is known; empty if it is.
    """

    def __init__(self, alerts: Iterable[Alert] = (), runbooks: str = "", note: str = "") -> None:
        self.note = note
        self._runbooks = runbooks
        self._by_job: dict[str, list[Alert]] = defaultdict(list)
        self._by_node: dict[str, list[Alert]] = defaultdict(list)
        self._others: list[Alert] = []
        for alert in alerts:
            if alert.job_id:
                self._by_job[alert.job_id].append(alert)
            elif alert.node:
                self._by_node[alert.node].append(alert)
            else:
                self._others.append(alert)

    def of_job(self, job: Job) -> tuple[AlertView, ...]:
        """Return those of a job, and of its nodes where they name no job."""
        return self._views(self._of(job))

    def of_node(self, node: str) -> tuple[AlertView, ...]:
        """Return those of a node, in whatever job."""
        of_jobs = (alert for alerts in self._by_job.values() for alert in alerts)
        return self._views(
            alert for alert in (*of_jobs, *self._by_node.get(node, ())) if alert.node == node
        )

    def of_none(self, jobs: Iterable[Job]) -> tuple[AlertView, ...]:
        """Return those that belong to none of these jobs."""
        shown = {alert for job in jobs for alert in self._of(job)}
        every = (*self._by_job.values(), *self._by_node.values(), self._others)
        return self._views(alert for alerts in every for alert in alerts if alert not in shown)

    def _of(self, job: Job) -> Iterator[Alert]:
        yield from self._by_job.get(job.job_id, ())
        if self._by_node:
            for node in self._by_node.keys() & set(job.nodes):
                yield from self._by_node[node]

    def _views(self, alerts: Iterable[Alert]) -> tuple[AlertView, ...]:
        nodes: dict[str, set[str]] = defaultdict(set)
        for alert in alerts:
            nodes[alert.name].update({alert.node} if alert.node else ())
        return tuple(
            AlertView(
                name,
                runbook(self._runbooks, name),
                tuple(sorted(found)[:_NAMED]),
                max(0, len(found) - _NAMED),
            )
            for name, found in sorted(nodes.items())
        )


class FiringAlerts:
    """Keeps what fires, for everybody who looks.

    Parameters
    ----------
    history
        Answers queries.
    runbooks
        Base address of the alerts' runbooks, as it is set up now.
    now
        Unix time.
    clock
        Seconds that only rise.
    """

    def __init__(
        self,
        history: History,
        runbooks: Callable[[], str],
        now: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._history, self._runbooks = history, runbooks
        self._now, self._clock = now, clock
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._firing = Firing(note="Prometheus has not answered yet")
        self._asked: float | None = None

    def get(self) -> Firing:
        """Return what fired within the last seconds, or when it was last known."""
        with self._lock:
            first = self._asked is None
            stale = self._asked is None or self._clock() - self._asked >= _FRESH_SECONDS
            if stale and (self._thread is None or not self._thread.is_alive()):
                self._asked = self._clock()
                self._thread = threading.Thread(target=self._read, name="alerts", daemon=True)
                self._thread.start()
            thread = self._thread
        if first and thread is not None:
            thread.join(_PATIENCE_SECONDS)
        return self._firing

    def _read(self) -> None:
        try:
            answers = self._history.at({"alerts": _QUERY}, self._now())
        except ReadError as error:
            self._firing = Firing(note=str(error))
            return
        refused = answers["alerts"]
        if isinstance(refused, ReadError):
            self._firing = Firing(note=str(refused))
            return
        found = (
            Alert(labels.get("alertname", ""), labels.get("job_id", ""), labels.get("node", ""))
            for labels, _ in rows_of(answers, "alerts")
        )
        self._firing = Firing(
            (alert for alert in found if alert.name != _FINDING), self._runbooks()
        )
