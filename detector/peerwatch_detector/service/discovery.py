"""Asks Prometheus which training jobs run where, and which detectors share them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.findings import ABSENT
from peerwatch_detector.frame import PartialAnswer, Series
from peerwatch_detector.jobs import Job, JobTable
from peerwatch_detector.reading import promql
from peerwatch_detector.reading.reader import Reader
from peerwatch_detector.service.members import MembershipView

# Seconds between two discoveries within which a node that both miss was absent; long cycles and
# slow answers make it longer. Four cycles of the default 15 s.
_LONGEST_PAUSE = 60.0


@dataclass(frozen=True, slots=True)
class Found:
    """The jobs of one discovery, and its Unix time."""

    time: float
    jobs: tuple[Job, ...]


class Discovery:
    """Finds the jobs; knows those of before, and who was absent since when.

    Parameters
    ----------
    config
        Settings.
    reader
        Where it is read.
    restore_seconds
        How far back published findings are searched.
    """

    def __init__(self, config: DetectorConfig, reader: Reader, restore_seconds: int) -> None:
        self.config = config
        self.reader = reader
        self.restore_seconds = restore_seconds
        self._table = JobTable()
        self._table_is_filled = False
        self._reported_roles: dict[tuple[str, str], str] = {}
        self._last: float | None = None
        self._failed = False

    def find(self, now: float) -> Found:
        """Return the jobs to evaluate.

        Raises
        ------
        ReadError
            As the reader; the next time goes on from what was known.
        """
        failed, self._failed = self._failed, True
        answer = self._running()
        running = {(each.labels["job_id"], each.labels["node"]) for each in answer}
        if not self._table_is_filled:
            self._fill(running, now)
        discovery = self.config.discovery
        present = self.reader.instant(promql.present_nodes(discovery.presence))
        if self._last is not None and (failed or not self._discovered_recently(now)):
            self._table.skip(now - self._last)
        jobs = self._table.update(
            running,
            {sample.labels["node"] for sample in present},
            now,
            partial=any(isinstance(each, PartialAnswer) for each in (answer, present)),
        )
        known = {job.job_id for job in jobs}
        self._reported_roles = {
            pair: role for pair, role in self._reported_roles.items() if pair[0] in known
        }
        self._failed, self._last = False, now
        return Found(now, tuple(replace(job, roles=self._roles(job)) for job in jobs))

    def membership(self) -> MembershipView:
        """Return which detectors of the group are there, and what they evaluate.

        Raises
        ------
        ReadError
            As the reader.
        """
        group = self.config.replicas.group
        there = self.reader.instant(promql.members(group))
        evaluates: dict[str, set[str]] = {}
        for sample in self.reader.instant(promql.evaluated_jobs(group)):
            evaluates.setdefault(sample.labels["job_id"], set()).add(sample.labels["member"])
        members = frozenset(sample.labels["member"] for sample in there)
        return MembershipView(
            members, {job_id: frozenset(who) for job_id, who in evaluates.items()}
        )

    def _discovered_recently(self, now: float) -> bool:
        """Whether no more time passed since the last answer than does between two discoveries.

        It has if this process was held up, or if the clock was set, be it back.
        """
        assert self._last is not None
        usual = max(self.config.cycle_seconds, self.config.prometheus.timeout_seconds)
        longest = max(_LONGEST_PAUSE, 4 * usual)
        return 0 <= now - self._last <= longest

    def _running(self) -> list[Series]:
        """Return the series of all jobs' nodes, and note the roles that they report."""
        label = self.config.peers.role_label
        query = promql.running_jobs(self.config.discovery.job_info, label)
        answer = self.reader.instant(query)
        if label is None:
            self._reported_roles.clear()
            return answer
        # Of two roles that a node reports, the later in order stands, whatever the server's order.
        for sample in sorted(answer, key=lambda sample: sample.labels.get(label, "")):
            self._reported_roles[sample.labels["job_id"], sample.labels["node"]] = (
                sample.labels.get(label, "")
            )
        return answer

    def _fill(self, running: set[tuple[str, str]], now: float) -> None:
        """Take in who was there before the detector was."""
        seconds = math.ceil(self.config.history_seconds)
        query = promql.known_jobs(self.config.discovery.job_info, seconds)
        absent = promql.absent_nodes(ABSENT, self.restore_seconds)
        known = self._pairs(query) | self._pairs(absent)
        # A job that ended before the restart is nobody's business now.
        alive = {job_id for job_id, _ in running}
        self._table.learn({pair for pair in known if pair[0] in alive}, now)
        self._table_is_filled = True

    def _pairs(self, query: str) -> set[tuple[str, str]]:
        return {
            (sample.labels["job_id"], sample.labels["node"])
            for sample in self.reader.instant(query)
        }

    def _roles(self, job: Job) -> dict[str, str]:
        """Return the roles of a job's nodes; an absent node keeps the one it had."""
        if not self._reported_roles and self.config.peers.role_pattern is None:
            return {}
        roles = {
            node: self.config.peers.role(node, self._reported_roles.get((job.job_id, node), ""))
            for node in job.nodes
        }
        return {node: role for node, role in roles.items() if role}
