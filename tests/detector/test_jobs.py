from __future__ import annotations

import pytest

from peerwatch_detector.detection.checks.absent import absent_seconds
from peerwatch_detector.jobs import Job, JobTable

NODES = {"a", "b", "c"}


def pairs(nodes: set[str] | str, job_id: str = "j") -> set[tuple[str, str]]:
    return {(job_id, node) for node in nodes}


def only(jobs: list[Job]) -> Job:
    (job,) = jobs
    return job


def test_a_job_is_what_its_nodes_tell() -> None:
    jobs = JobTable().update(pairs("ba") | pairs("xy", "k"), {"a", "b", "x", "y"}, 100.0)
    assert [Job("j", ("a", "b")), Job("k", ("x", "y"))] == jobs


def test_a_node_may_work_for_two_jobs() -> None:
    jobs = JobTable().update(pairs("ab") | pairs("bc", "k"), NODES, 100.0)
    assert [("a", "b"), ("b", "c")] == [job.nodes for job in jobs]


def test_a_node_that_can_be_scraped_but_no_longer_tells_has_left_after_a_while() -> None:
    table = JobTable()
    table.update(pairs("abc"), NODES, 100.0)
    assert ("a", "b", "c") == only(table.update(pairs("ab"), NODES, 130.0)).nodes
    left = only(table.update(pairs("ab"), NODES, 131.0))
    assert Job("j", ("a", "b")) == left


def test_a_node_that_misses_one_discovery_has_not_left() -> None:
    table = JobTable()
    table.update(pairs("abc"), NODES, 100.0)
    table.update(pairs("ab"), NODES, 115.0)
    assert Job("j", ("a", "b", "c")) == only(table.update(pairs("abc"), NODES, 130.0))


def test_a_node_that_vanishes_stays_a_member_and_is_silent_since_it_was_last_there() -> None:
    table = JobTable()
    table.update(pairs("abc"), NODES, 100.0)
    for now in (115.0, 200.0, 2000.0):
        job = only(table.update(pairs("ab"), {"a", "b"}, now))
        assert Job("j", ("a", "b", "c"), {"c": 100.0}) == job


def test_a_partial_answer_says_nothing_about_whom_it_lacks() -> None:
    table = JobTable()
    table.update(pairs("abc"), NODES, 100.3)
    table.update(pairs("ab"), {"a", "b"}, 160.3)
    for now in (200.7, 1000.1, 3000.9):
        job = only(table.update(pairs("a"), {"a"}, now, partial=True))
        assert (("a", "b", "c"), True) == (job.nodes, job.running)
        # Of c, which was absent before, it stays open whether it still is.
        assert {"c": pytest.approx(now - 60.0)} == job.absent_since
    whole = only(table.update(pairs("ab"), {"a", "b"}, 3010.9))
    assert {"c": pytest.approx(2940.9)} == whole.absent_since


def test_jobs_end_in_answers_that_stay_partial_and_nodes_do_not_vanish_in_them() -> None:
    table = JobTable()
    table.update(pairs("ab") | pairs("xy", "k"), {"a", "b", "x", "y"}, 0.0)
    found = [
        table.update(pairs("xy", "k"), {"x"}, float(now), partial=True)
        for now in range(60, 4200, 60)
    ]
    assert {"j", "k"} == {job.job_id for job in found[58]}
    assert Job("k", ("x", "y")) == only(found[-1])


def test_a_node_that_returns_is_not_silent() -> None:
    table = JobTable()
    table.update(pairs("abc"), NODES, 100.0)
    table.update(pairs("ab"), {"a", "b"}, 160.0)
    back = Job("j", ("a", "b", "c"), back_since={"c": 100.0})
    assert back == only(table.update(pairs("abc"), NODES, 170.0))
    assert back == only(table.update(pairs("abc"), NODES, 230.0))
    assert Job("j", ("a", "b", "c")) == only(table.update(pairs("abc"), NODES, 231.0))


def test_who_comes_back_later_than_others_from_an_outage_of_the_monitoring_is_not_absent() -> None:
    nodes = [f"n{number}" for number in range(8)]
    table = JobTable()
    table.update(pairs(set(nodes)), set(nodes), 100.0)
    table.update(set(), set(), 190.0)
    absent = {}
    for count, now in ((2, 195.0), (5, 200.0), (7, 205.0), (7, 260.0), (7, 275.0)):
        there = set(nodes[:count])
        job = only(table.update(pairs(there), there, now))
        absent[now] = absent_seconds(job.absent_since, 8, now, 15.0, job.back_since)

    # Whom the outage has really taken is absent once the others have been back for a minute.
    assert {"n7": 175.0} == absent.pop(275.0)
    assert {195.0: {}, 200.0: {}, 205.0: {}, 260.0: {}} == absent


def test_a_node_that_vanishes_while_few_others_come_back_is_absent() -> None:
    back = {"a": 50.0, "b": 50.0}
    assert {"c": 40.0} == absent_seconds({"c": 60.0}, 8, 100.0, 15.0, back)
    # That others were gone an hour ago says nothing of it.
    long_ago = dict.fromkeys("abdefg", -3600.0)
    assert {"c": 40.0} == absent_seconds({"c": 60.0}, 8, 100.0, 15.0, long_ago)


def test_a_node_that_returns_without_the_job_has_left() -> None:
    table = JobTable()
    table.update(pairs("abc"), NODES, 100.0)
    table.update(pairs("ab"), {"a", "b"}, 160.0)
    assert ("a", "b") == only(table.update(pairs("ab"), NODES, 170.0)).nodes


def test_a_node_that_joins_is_a_member_at_once() -> None:
    table = JobTable()
    table.update(pairs("ab"), NODES, 100.0)
    assert ("a", "b", "c") == only(table.update(pairs("abc"), NODES, 115.0)).nodes


def test_an_ended_job_lingers_whole_and_is_then_forgotten() -> None:
    table = JobTable()
    table.update(pairs("abc"), NODES, 100.0)
    for now in (115.0, 160.0, 220.0):
        assert Job("j", ("a", "b", "c"), {}, running=False) == only(table.update(set(), NODES, now))
    assert [] == table.update(set(), NODES, 221.0)
    assert [] == table.update(set(), NODES, 222.0)


def test_a_node_that_vanished_with_the_end_of_its_job_is_silent() -> None:
    table = JobTable()
    table.update(pairs("abc"), NODES, 100.0)
    table.update(pairs("ab"), {"a", "b"}, 115.0)
    job = only(table.update(set(), {"a", "b"}, 190.0))
    assert ({"c": 100.0}, False) == (job.absent_since, job.running)


def test_a_node_that_is_switched_off_after_the_end_is_not_silent() -> None:
    table = JobTable()
    table.update(pairs("abc"), NODES, 100.0)
    table.update(set(), NODES, 140.0)
    assert {} == only(table.update(set(), {"a", "b"}, 170.0)).absent_since


def test_a_job_id_that_starts_again_is_the_same_job() -> None:
    table = JobTable()
    table.update(pairs("abc"), NODES, 100.0)
    table.update(set(), NODES, 150.0)
    assert Job("j", ("a", "b", "c")) == only(table.update(pairs("abc"), NODES, 165.0))


def test_after_a_restart_nodes_known_from_before_that_are_gone_are_silent() -> None:
    table = JobTable()
    table.learn(pairs("abc"), 100.0)
    job = only(table.update(pairs("ab"), {"a", "b"}, 100.0))
    assert ("a", "b", "c") == job.nodes
    assert {"c": pytest.approx(100.0)} == job.absent_since


def test_after_a_restart_nodes_known_from_before_that_left_in_order_leave() -> None:
    table = JobTable()
    table.learn(pairs("abc"), 100.0)
    assert {} == only(table.update(pairs("ab"), NODES, 100.0)).absent_since
    assert ("a", "b") == only(table.update(pairs("ab"), NODES, 131.0)).nodes


def test_silence_is_counted_from_the_last_sign() -> None:
    assert {"c": 40.0} == absent_seconds({"c": 60.0}, 4, 100.0, 15.0)


def test_a_missed_scrape_is_not_silence() -> None:
    assert {} == absent_seconds({"c": 85.1}, 4, 100.0, 15.0)
    assert {"c": 15.0} == absent_seconds({"c": 85.0}, 4, 100.0, 15.0)


@pytest.mark.parametrize(
    ("nodes", "silent", "flagged"), [(4, 2, 2), (4, 3, 0), (3, 2, 0), (2, 1, 1)]
)
def test_silence_means_nothing_once_most_nodes_are_silent(
    nodes: int, silent: int, flagged: int
) -> None:
    since = {f"n{index}": 0.0 for index in range(silent)}
    assert flagged == len(absent_seconds(since, nodes, 100.0, 15.0))


def test_nobody_is_absent_while_all_are_there() -> None:
    assert {} == absent_seconds({}, 8, 100.0, 15.0)


def test_time_in_which_nobody_could_ask_is_nobodys_silence() -> None:
    table = JobTable()
    table.update(pairs("abc"), NODES, 100.0)
    table.update(pairs("ab"), {"a", "b"}, 115.0)
    table.skip(600.0)

    # A Prometheus that is just back has scraped nothing yet: nobody left, nobody became absent.
    job = only(table.update(set(), set(), 715.0))

    assert Job("j", ("a", "b", "c"), {"c": 700.0}) == job


@pytest.mark.parametrize(("vanished", "flagged"), [(30, 30), (33, 0)])
def test_those_that_departed_long_ago_do_not_count_against_who_vanishes_now(
    vanished: int, flagged: int
) -> None:
    departed = {f"old{index}": 1000.0 * index for index in range(50)}
    since = {f"new{index}": 90_000.0 for index in range(vanished)}
    absent = absent_seconds(departed | since, 64 + 50, 90_060.0, 15.0)
    assert flagged == len(absent.keys() & since.keys())


def test_nodes_whose_hosts_are_replaced_are_findings_for_a_while_only() -> None:
    table, names, absent = JobTable(), [f"n{index}" for index in range(64)], []
    for minute in range(80):
        if minute:
            names = [*names[1:], f"n{63 + minute}"]
        job = only(table.update(pairs(set(names)), set(names), 60.0 * minute))
        absent.append(len(absent_seconds(job.absent_since, len(job.nodes), 60.0 * minute, 60.0)))
    assert [0, 1, 2, 3] == absent[:4]
    assert [10] * 60 == absent[20:]


@pytest.mark.parametrize(("joined", "forgotten"), [(100.0, True), (85.0, False)])
def test_who_is_there_already_when_a_host_is_seen_last_has_replaced_it(
    joined: float, forgotten: bool
) -> None:
    table = JobTable()
    table.update(pairs("abc"), NODES, 70.0)
    for now in (85.0, 100.0):
        table.update(pairs("abcd" if now >= joined else "abc"), NODES | {"d"}, now)
    job = only(table.update(pairs("abd"), {"a", "b", "d"}, 701.0))
    assert forgotten is ("c" not in job.nodes)


def test_a_node_that_nobody_replaces_stays_absent_until_the_job_has_clearly_gone_on() -> None:
    table = JobTable()
    table.update(pairs("abc"), NODES, 0.0)
    for now in (15.0, 3600.0):
        assert {"c": 0.0} == only(table.update(pairs("ab"), {"a", "b"}, now)).absent_since
    assert ("a", "b") == only(table.update(pairs("ab"), {"a", "b"}, 3601.0)).nodes
