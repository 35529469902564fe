"""Of three detectors two evaluate each job; one of the two is killed: one page, and no gap.

Both publish the same finding, so whatever rules and dashboards count must come out as if one did.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.error import HTTPError

import pytest
from asking import query, wait_for
from detector_group import RULES, DetectorGroup, detector_group

from all_metrics import ALL_METRICS
from dashboard_queries import DASHBOARDS, dashboard_expressions
from peerwatch_detector.service.members import owners
from yaml_files import read_yaml

MEMBERS = ("detector-0", "detector-1", "detector-2")
JOBS = ("job-0",)
(FAULTY_JOB,) = JOBS
FAULTY_NODE = f"{FAULTY_JOB}-node-1"
KILLED, SURVIVOR = owners(FAULTY_JOB, MEMBERS, 2)
LEFT = tuple(member for member in MEMBERS if member != KILLED)
# Alertmanager would have sent an alert that resolved or came again by then.
LATE_SECONDS = 10

# Labels, and a number if it matters.
Rows = list[tuple[list[tuple[str, str]], float | None]]

_OURS = re.compile(r"\bpeerwatch_\w+")

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("plays-2")]


@pytest.fixture(scope="module")
def paged() -> Iterator[DetectorGroup]:
    """The group after the page about a node that both who evaluate its job have found."""
    with detector_group(MEMBERS, JOBS, replication=2) as group:
        for member in MEMBERS:
            group.start(member)
        wait_for("the jobs are shared out", lambda: group.evaluated() == owned(MEMBERS))
        group.exposition.loaded.add(FAULTY_NODE)
        wait_for("both name the node", lambda: group.naming() == {KILLED, SURVIVOR})
        wait_for("a page", group.pages)
        yield group


@dataclass(frozen=True)
class Taken:
    """A group, since when the node deviated, and when one was killed and all was quiet again."""

    group: DetectorGroup
    since: float
    killed: float
    ended: float


def owned(members: tuple[str, ...]) -> dict[str, set[str]]:
    """Return the jobs that each member publishes when only some of all are there."""
    jobs = {job: owners(job, members, 2) for job in JOBS}
    return {member: {job for job, who in jobs.items() if member in who} for member in MEMBERS}


def test_a_fault_that_two_find_is_one_page(paged: DetectorGroup) -> None:
    ended = time.time() + LATE_SECONDS
    wait_for("a late alert has come", lambda: time.time() > ended)
    (page,) = paged.pages()
    assert (FAULTY_NODE,) == page.nodes()
    assert 1 == len(page.alerts)
    wait_for("both name it", lambda: 2 == len(query(paged.prometheus.url, "peerwatch_finding")))


def test_rules_count_once_what_two_publish(paged: DetectorGroup) -> None:
    assert [] == counted_twice(paged, RULE_EXPRESSIONS)


def test_dashboards_count_once_what_two_publish(paged: DetectorGroup) -> None:
    assert [] == counted_twice(paged, DASHBOARD_EXPRESSIONS)


@pytest.fixture(scope="module")
def taken_over(paged: DetectorGroup) -> Taken:
    """The group after one of the two who named the node was killed and a third took it over."""
    before, killed = since(paged), time.time()
    paged.processes[KILLED].kill()
    wait_for("a third takes its jobs over", lambda: paged.evaluated() == owned(LEFT))
    wait_for("both name the node again", lambda: paged.naming() == set(LEFT))
    ended = time.time() + LATE_SECONDS
    wait_for("the rules have seen it", lambda: time.time() > ended)
    return Taken(paged, before, killed, ended)


def test_one_of_the_two_is_killed_and_nobody_is_paged_again(taken_over: Taken) -> None:
    group = taken_over.group
    assert taken_over.since == pytest.approx(since(group), abs=2)
    # Not for a second was it not named, or a second alert.
    named = "count(max by (job_id, node) (peerwatch_finding))"
    firing = 'count(ALERTS{alertname="PeerwatchFaultyNode",alertstate="firing"})'
    for expression in (named, firing):
        span = taken_over.killed, taken_over.ended
        found = group.values(expression, *span, scraped=SURVIVOR)
        assert {1.0} == set(found), expression
    assert 1 == len(group.pages())


def test_rules_count_once_what_was_taken_over(taken_over: Taken) -> None:
    assert [] == counted_twice(taken_over.group, RULE_EXPRESSIONS)


def test_dashboards_count_once_what_was_taken_over(taken_over: Taken) -> None:
    assert [] == counted_twice(taken_over.group, DASHBOARD_EXPRESSIONS)


def since(group: DetectorGroup) -> float:
    """Return since when the node deviates, about which all who name it agree."""
    starts = query(group.prometheus.url, "peerwatch_finding_start_timestamp_seconds")
    assert {FAULTY_NODE} == {series["metric"]["node"] for series in starts}
    times = [float(series["value"][1]) for series in starts]
    assert times[0] == pytest.approx(times[-1], abs=2)
    return times[0]


def counted_twice(group: DetectorGroup, expressions: Iterable[str]) -> list[str]:
    """Return what is answered otherwise than if one detector were there, and the answers."""
    now, url, instance = time.time(), group.prometheus.url, group.instance(SURVIVOR)
    found = []
    for expression in expressions:
        once, both = rows(url, of_one(expression, instance), now), rows(url, expression, now)
        if once != both:
            found.append(f"{expression}\n  of one: {once}\n  of two: {both}")
    return found


def is_about_jobs(expression: str) -> bool:
    """Whether an expression reads what detectors say about jobs, and nothing about themselves."""
    names = [name for name in _OURS.findall(expression) if name in ALL_METRICS]
    return bool(names) and all("job_id" in ALL_METRICS[name].labels for name in names)


def of_one(expression: str, instance: str) -> str:
    """Return an expression that reads what one detector publishes only."""

    def narrowed(match: re.Match[str]) -> str:
        name, rest = match[0], match.string[match.end() :]
        only = f'{name}{{instance="{instance}"'
        return only if name in ALL_METRICS and rest.startswith("{") else f"{only}}}"

    narrow = _OURS.sub(narrowed, expression)
    return narrow.replace(f'instance="{instance}"{{', f'instance="{instance}",')


def rows(url: str, expression: str, at: float) -> Rows | str:
    """Return the rows of an answer: the labels, and the number where things are counted.

    Two detectors evaluate at different seconds: their scores differ, and what they say in words.
    """
    counts = re.search(r"\b(count|sum|changes)\b", expression) is not None
    try:
        answer = query(url, expression, at)
    except HTTPError as error:
        return error.read().decode()
    labels = [
        series["metric"].items() - {("summary", series["metric"].get("summary"))}
        for series in answer
    ]
    numbers = [float(series["value"][1]) if counts else None for series in answer]
    return sorted(zip((sorted(pairs) for pairs in labels), numbers, strict=True), key=str)


def rule_expressions() -> Iterator[str]:
    """Yield what the shipped rules ask."""
    for file in RULES:
        for group in read_yaml(file)["groups"]:
            yield from (rule["expr"] for rule in group["rules"])


def shown_expressions() -> Iterator[str]:
    """Yield what the shipped dashboards ask about the job and its faulty node."""
    shown = {"job_id": FAULTY_JOB, "node": FAULTY_NODE}
    for path in DASHBOARDS:
        yield from (expression for _, expression in dashboard_expressions(path, shown))


RULE_EXPRESSIONS = [expression for expression in rule_expressions() if is_about_jobs(expression)]
DASHBOARD_EXPRESSIONS = [
    expression for expression in shown_expressions() if is_about_jobs(expression)
]
