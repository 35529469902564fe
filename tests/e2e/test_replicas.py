"""Two detectors share six jobs; one is killed in mid-fault and comes back: one page, no gap.

Real detector processes, a real Prometheus with the shipped rules, a real Alertmanager with the
shipped routing; the test's own exposition takes the place of the exporters.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from asking import query, wait_for
from detector_group import DetectorGroup, detector_group

from peerwatch_detector.service.members import owners

MEMBERS = ("detector-0", "detector-1")
JOBS = tuple(f"job-{number}" for number in range(6))
OWNED = {
    member: {job for job in JOBS if owners(job, MEMBERS, 1) == (member,)} for member in MEMBERS
}
KILLED, SURVIVOR = MEMBERS
FAULTY_JOB = min(OWNED[KILLED])
FAULTY_NODE = f"{FAULTY_JOB}-node-1"

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("plays-2")]


@pytest.fixture(scope="module")
def pair() -> Iterator[DetectorGroup]:
    with detector_group(MEMBERS, JOBS) as pair:
        yield pair


@pytest.fixture(scope="module")
def paged(pair: DetectorGroup) -> DetectorGroup:
    """The pair after the page about the faulty node, which the one to be killed has found."""
    for member in MEMBERS:
        pair.start(member)
    wait_for("the jobs are shared out", lambda: pair.evaluated() == OWNED)
    pair.exposition.loaded.add(FAULTY_NODE)
    wait_for("a page", pair.pages)
    return pair


def test_each_evaluates_its_share_and_one_page_comes(paged: DetectorGroup) -> None:
    assert all(OWNED.values())
    wait_for("the jobs are shared out", lambda: paged.evaluated() == OWNED)
    (page,) = paged.pages()
    assert page.nodes() == (FAULTY_NODE,)
    (finding,) = wait_for("it is scraped", lambda: query(paged.prometheus.url, "peerwatch_finding"))
    assert finding["metric"]["job_id"] == FAULTY_JOB
    assert finding["metric"]["instance"] == paged.instance(KILLED)


def test_a_killed_detectors_jobs_move_and_return_without_a_second_page(
    paged: DetectorGroup,
) -> None:
    before = since(paged)
    killed = time.time()
    paged.processes[KILLED].kill()
    # Two cycles are the promise; a busy machine may take longer to schedule everybody.
    wait_for("all jobs are taken over", lambda: paged.evaluated()[SURVIVOR] == set(JOBS), 60)
    assert before == pytest.approx(since(paged), abs=2)
    wait_for("it is missed", lambda: missed(paged) == {KILLED})

    returned = time.time()
    paged.start(KILLED)
    wait_for("it has its jobs back", lambda: paged.evaluated() == OWNED)
    back = time.time()
    wait_for("nobody is missed", lambda: not missed(paged))
    # An alert that resolved or came again would have been sent by then.
    wait_for("the rules have seen it", lambda: time.time() > back + 10)

    assert before == pytest.approx(since(paged), abs=2)
    # Somebody evaluated the job in every second while the jobs went back; for a moment, which may
    # fall between two scrapes, two do (detector/service/test_sharing.py).
    detecting = f'count(peerwatch_job_owner{{job_id="{FAULTY_JOB}"}})'
    assert {1.0, 2.0} >= set(paged.values(detecting, returned, back, scraped=SURVIVOR))
    firing = 'count(ALERTS{alertname="PeerwatchFaultyNode",alertstate="firing"})'
    assert {1.0} == set(paged.values(firing, killed, back + 10))
    assert 1 == len(paged.pages())


def missed(pair: DetectorGroup) -> set[str]:
    """Return the detectors that the alert about a lost one is waiting to tell of."""
    waiting = 'ALERTS{alertname="PeerwatchDetectorLost",alertstate="pending"}'
    return {series["metric"]["member"] for series in query(pair.prometheus.url, waiting)}


def since(pair: DetectorGroup) -> float:
    """Return since when the one node that is named deviates."""
    # One scrape that a busy machine misses takes the series away until the next.
    (start,) = wait_for(
        "it is scraped",
        lambda: query(pair.prometheus.url, "peerwatch_finding_start_timestamp_seconds"),
    )
    assert FAULTY_NODE == start["metric"]["node"]
    return float(start["value"][1])
