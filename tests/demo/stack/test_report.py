"""The verdict and the table follow from what happened."""

from __future__ import annotations

import pytest

from peerwatch_demo.stack.report import Event, decisive, evaluate, evaluate_each, table
from peerwatch_demo.stack.webhook import Alert, Notification

EVENTS = [
    Event("candidate", 95.0, "node-3", "cpu_usage"),
    Event("fault", 100.0, "node-3"),
    Event("candidate", 101.0, "node-0", "tcp_send_queue"),
    Event("candidate", 102.0, "node-3", "cpu_usage"),
    Event("candidate", 105.5, "node-3", "cpu_usage"),
    Event("finding", 125.5, "node-3", "cpu_usage"),
    Event("candidate", 126.0, "node-3", "cpu_usage"),
    Event("alert", 127.0, "node-3", "cpu_usage"),
    Event("page", 132.25, "node-3", "cpu_usage"),
    Event("page", 140.0, "node-1", "cpu_usage"),
]


def page(arrived: float, *nodes: str) -> Notification:
    alerts = tuple(Alert("firing", {"node": node}, {}) for node in nodes)
    return Notification("/page", arrived, "firing", {}, alerts)


def test_the_decisive_candidate_is_the_last_that_became_the_finding() -> None:
    chain = decisive(EVENTS)

    assert [
        ("fault", 100.0),
        ("candidate", 105.5),
        ("finding", 125.5),
        ("alert", 127.0),
        ("page", 132.25),
    ] == [(event.kind, event.at) for event in chain]


def test_without_a_finding_the_first_candidate_is_shown() -> None:
    chain = decisive(EVENTS[:4])

    assert ["node-3", "node-0"] == [event.node for event in chain]


def test_nothing_is_decisive_without_a_fault() -> None:
    assert [] == decisive(EVENTS[:1])


def test_the_table_has_the_seconds_between_the_lines() -> None:
    lines = table(EVENTS).splitlines()

    assert [
        ["fault", "injected", "0.0", "s", "node-3"],
        ["candidate", "5.5", "s", "5.5", "s", "node-3", "cpu_usage"],
        ["finding", "25.5", "s", "20.0", "s", "node-3", "cpu_usage"],
        ["alert", "fires", "27.0", "s", "1.5", "s", "node-3", "cpu_usage"],
        ["page", "32.2", "s", "5.2", "s", "node-3", "cpu_usage"],
    ] == [line.split() for line in lines[1:]]
    assert 1 == len({line.index("node-3") for line in lines[1:]})


def test_one_page_with_the_right_name_is_right() -> None:
    assert evaluate("node-3", 100, [page(130, "node-3")]).right


@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        ([], "no page came"),
        ([page(130, "node-1")], "named node-1; faulty was node-3"),
        ([page(130, "node-3", "node-1")], "named node-3, node-1"),
        ([page(130)], "named nobody"),
        ([page(90, "node-3")], "before the fault"),
        ([page(130, "node-3"), page(140, "node-1")], "2 pages came instead of one"),
    ],
    ids=["none", "wrong", "both", "nobody", "early", "second"],
)
def test_everything_else_is_wrong_and_says_why(pages: list[Notification], reason: str) -> None:
    verdict = evaluate("node-3", 100, pages)

    assert not verdict.right
    assert reason in verdict.sentence


def test_a_page_about_each_faulty_node_is_right() -> None:
    pages = [page(130, "node-3"), page(131, "node-1")]

    assert evaluate_each(["node-1", "node-3"], 100, pages).right


@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        ([], "no page came about node-1, node-3; named were nobody"),
        ([page(130, "node-3")], "no page came about node-1"),
        ([page(90, "node-3"), page(130, "node-1")], "before the faults and named node-3"),
        ([page(130, "node-1", "node-3")], "in their place, node-1, node-3"),
        ([page(130, "node-1"), page(130, "node-3"), page(140)], "in their place, nobody"),
        ([page(130, "node-1"), page(130, "node-3"), page(140, "node-1")], "than one page came"),
    ],
    ids=["none", "missed", "early", "together", "nobody", "twice"],
)
def test_of_several_faults_everything_else_is_wrong(pages: list[Notification], reason: str) -> None:
    verdict = evaluate_each(["node-1", "node-3"], 100, pages)

    assert not verdict.right
    assert reason in verdict.sentence
