"""Several detectors on one fake Prometheus, which scrapes them once a cycle."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from detector.fakes import START, FakeClock, FakeReader, config_for, healthy, node_names
from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import Series
from peerwatch_detector.models.store import EMPTY
from peerwatch_detector.reading import promql
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.service.members import owners
from peerwatch_detector.service.metrics import Snapshot
from peerwatch_detector.service.schedule import Backlog
from peerwatch_detector.service.workers import attempt

CYCLE = 15.0
# Second from which the faulty node deviates.
ONSET = 600
JOBS = tuple(f"job-{number}" for number in range(6))
FAULTY = JOBS[0]


@dataclass
class ScrapedReader(FakeReader):
    """Knows what the detectors published when they were last scraped, by member."""

    scraped: dict[str, Snapshot] = field(default_factory=dict)

    def _instant(self, query: str, now: float) -> list[Series]:
        for group in {snapshot.membership.group for snapshot in self.scraped.values()}:
            if query == promql.members(group):
                return [
                    self._sample(member=snapshot.membership.member)
                    for snapshot in self.scraped.values()
                    if snapshot.membership.group == group and snapshot.membership.shares
                ]
            if query == promql.evaluated_jobs(group):
                return [
                    self._sample(job_id=job_id, member=snapshot.membership.member)
                    for snapshot in self.scraped.values()
                    if snapshot.membership.group == group
                    for job_id in snapshot.membership.jobs
                ]
        return super()._instant(query, now)

    def _sample(self, **labels: str) -> Series:
        return Series(labels, np.array([self.clock.now]), np.ones(1))


@dataclass
class Cluster:
    """The detectors: those that Prometheus cannot reach, and those still reading what is past."""

    clock: FakeClock
    reader: ScrapedReader
    detectors: dict[str, Detector] = field(default_factory=dict)
    cut_off: set[str] = field(default_factory=set)
    busy: set[str] = field(default_factory=set)

    def start(self, member: str, **replicas: object) -> None:
        config = config_for(replicas={"enabled": True, "member": member} | replicas)
        self.detectors[member] = Detector(config, self.reader, EMPTY, self.clock)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / CYCLE)):
            self.clock.advance(CYCLE)
            for member, detector in self.detectors.items():
                if member not in self.busy:
                    detector.cycle()
            self.scrape()

    def scrape(self) -> None:
        self.reader.scraped = {
            member: detector.snapshot
            for member, detector in self.detectors.items()
            if member not in self.cut_off
        }
        for snapshot in self.reader.scraped.values():
            self.reader.publish(snapshot)

    def evaluated(self) -> dict[str, set[str]]:
        return {
            member: {detection.job.job_id for detection in detector.snapshot.detections}
            for member, detector in self.detectors.items()
        }

    def findings(self) -> set[tuple[str, str, str, float]]:
        """Return what Prometheus shows: member, job, node and since when."""
        return {
            (member, finding.job_id, finding.node, finding.since)
            for member, snapshot in self.reader.scraped.items()
            for detection in snapshot.detections
            for finding in detection.findings
        }


@pytest.fixture
def cluster() -> Cluster:
    clock = FakeClock()
    reader = ScrapedReader(clock, config_for())
    for number, job_id in enumerate(JOBS):
        values = healthy(4, 4000, number)
        if job_id == FAULTY:
            values[1, ONSET:] += 0.3
        names = tuple(f"{job_id}-{name}" for name in node_names(4))
        reader.add_job(job_id, {"load": values}, names, START)
    return Cluster(clock, reader)


def share(member: str, *members: str, replication: int = 1) -> set[str]:
    return {job for job in JOBS if member in owners(job, members, replication)}


def owner_and_other() -> tuple[str, str]:
    """Return the owner of the faulty job among two, and the other."""
    first, second = owners(FAULTY, ("a", "b"), 2)
    return first, second


def test_two_detectors_share_the_jobs(cluster: Cluster) -> None:
    cluster.start("a")
    cluster.start("b")
    cluster.run(5 * CYCLE)

    assert {"a": share("a", "a", "b"), "b": share("b", "a", "b")} == cluster.evaluated()
    assert all(cluster.evaluated().values())


def test_a_detector_of_another_group_or_alone_takes_no_jobs(cluster: Cluster) -> None:
    cluster.start("a")
    cluster.start("fine", group="fine")
    cluster.start("alone", enabled=False)
    cluster.run(5 * CYCLE)

    assert {member: set(JOBS) for member in ("a", "fine", "alone")} == cluster.evaluated()


def test_with_replication_2_two_of_three_evaluate_every_job(cluster: Cluster) -> None:
    group = ("a", "b", "c")
    for member in group:
        cluster.start(member, replication=2)
    cluster.run(5 * CYCLE)

    assert {member: share(member, *group, replication=2) for member in group} == cluster.evaluated()
    assert 2 * len(JOBS) == sum(map(len, cluster.evaluated().values()))


def test_both_copies_of_a_job_say_the_same(cluster: Cluster) -> None:
    for member in ("a", "b"):
        cluster.start(member, replication=2)
    cluster.run(ONSET + 300)

    seen = cluster.findings()
    assert {"a", "b"} == {member for member, *_ in seen}
    assert 1 == len({tuple(finding) for _, *finding in seen})


def test_a_killed_detectors_jobs_move_and_its_finding_stands(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    owner, other = owner_and_other()
    for member in ("a", "b"):
        cluster.start(member)
    cluster.run(ONSET + 300)
    ((_, *finding),) = cluster.findings()
    caplog.clear()

    del cluster.detectors[owner]
    cluster.run(CYCLE)
    assert share(other, "a", "b") == cluster.evaluated()[other]
    # Two looks that do not see it; here there is one look a cycle.
    cluster.run(2 * CYCLE)
    assert set(JOBS) == cluster.evaluated()[other]
    assert {(other, *finding)} == cluster.findings()
    assert not [r for r in caplog.records if "finding_raised" in r.getMessage()]


def test_a_detector_that_returns_gets_its_jobs_and_the_other_keeps_them_until_then(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    owner, other = owner_and_other()
    cluster.start(other)
    cluster.run(ONSET + 300)
    ((_, *finding),) = cluster.findings()
    caplog.clear()

    cluster.start(owner)
    newcomer = cluster.detectors[owner]
    newcomer.discovered(attempt(newcomer.find))
    newcomer.found_members(attempt(newcomer.find_members))
    newcomer.publish(Backlog())
    cluster.busy.add(owner)
    cluster.run(10 * CYCLE)
    assert {(other, *finding)} == cluster.findings()
    cluster.busy.clear()
    published = []
    for _ in range(6):
        cluster.run(CYCLE)
        published.append({member for member, *rest in cluster.findings() if rest == finding})
    assert all(published), "nobody published it for a while"
    assert {"a", "b"} in published
    assert {owner} == published[-1]
    assert {"a": share("a", "a", "b"), "b": share("b", "a", "b")} == cluster.evaluated()
    assert not [r for r in caplog.records if "finding_raised" in r.getMessage()]


def test_a_detector_that_cannot_be_scraped_goes_on_and_nobody_drops_a_job(
    cluster: Cluster,
) -> None:
    owner, other = owner_and_other()
    for member in ("a", "b"):
        cluster.start(member)
    cluster.run(ONSET + 300)
    ((_, *finding),) = cluster.findings()

    cluster.cut_off.add(owner)
    for _ in range(6):
        cluster.run(CYCLE)
        assert share(owner, "a", "b") <= cluster.evaluated()[owner]
    assert {(other, *finding)} == cluster.findings()
    assert set(JOBS) == cluster.evaluated()[other]

    cluster.cut_off.clear()
    cluster.run(4 * CYCLE)
    assert {(owner, *finding)} == cluster.findings()


def test_one_scrape_that_fails_moves_nothing(cluster: Cluster) -> None:
    for member in ("a", "b"):
        cluster.start(member)
    cluster.run(5 * CYCLE)
    before = cluster.evaluated()
    cluster.cut_off.add("a")
    cluster.scrape()
    cluster.cut_off.clear()
    cluster.run(CYCLE)
    assert before == cluster.evaluated()


def test_who_is_there_is_asked_before_any_job_is_evaluated(cluster: Cluster) -> None:
    cluster.start("a")
    cluster.run(3 * CYCLE)
    cluster.start("b")
    cluster.run(CYCLE)
    assert share("b", "a", "b") == cluster.evaluated()["b"]


def test_a_detector_that_cannot_ask_who_is_there_evaluates_all(cluster: Cluster) -> None:
    cluster.start("a")
    cluster.start("b")
    refused = ReadError("refused", "Not for you.")
    cluster.reader.failures_by_query = {"peerwatch_detector_member": refused}
    cluster.run(3 * CYCLE)

    assert {member: set(JOBS) for member in "ab"} == cluster.evaluated()
    assert {("members",): "refused"} == cluster.detectors["a"].failures.reasons
    cluster.reader.failures_by_query = {}
    cluster.run(4 * CYCLE)
    assert {"a": share("a", "a", "b"), "b": share("b", "a", "b")} == cluster.evaluated()
