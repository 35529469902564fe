"""Ranks that end or are stopped: who is named, and when nobody is."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from detector.diagnosis.rank_series import ASKED_EVERY, JobSeries, Rank
from peerwatch_detector.diagnosis.processes.process_diagnoser import GRACE_SECONDS, ProcessDiagnoser


@pytest.fixture
def job() -> JobSeries:
    job = JobSeries()
    assert [] == job.run(60)
    return job


def test_a_rank_that_was_killed_is_named_while_the_others_wait(job: JobSeries) -> None:
    job.halt(3, signal="SIGKILL")
    killed = job.now
    assert [] == job.run(GRACE_SECONDS - ASKED_EVERY)
    (verdict,) = job.run(ASKED_EVERY)

    assert ("c3", 3, "rank_exited", "unknown", "sure", "inspect") == (
        verdict.node,
        verdict.rank,
        verdict.class_name,
        verdict.domain,
        verdict.confidence,
        verdict.action,
    )
    assert verdict.names_node
    assert killed == verdict.start_time
    assert (0, 1, 2) == verdict.victims
    assert "rank 3 on node c3 was killed by SIGKILL; 3 ranks of the job left." == verdict.summary


@pytest.mark.parametrize(
    ("state", "how", "expected"),
    [
        ("exited", {}, "was killed or ended without its exit handlers"),
        ("exited", {"code": "1", "error": "RuntimeError"}, "ended with RuntimeError"),
        ("zombie", {"signal": "SIGSEGV"}, "was killed by SIGSEGV and is a zombie"),
        ("zombie", {"code": "7"}, "ended with exit code 7 and is a zombie"),
        ("stopped", {}, "is stopped (SIGSTOP or SIGTSTP)"),
    ],
)
def test_the_summary_says_what_is_known(
    job: JobSeries, state: str, how: dict[str, str], expected: str
) -> None:
    job.halt(2, state, **how)
    (verdict,) = job.run(20)
    assert expected in verdict.summary
    assert f"rank_{state}" == verdict.class_name
    assert ("ask" if "error" in how else "inspect") == verdict.action


def test_the_kernels_word_about_memory_is_told_of_the_same_node_only(job: JobSeries) -> None:
    job.oom = ("c3",)
    job.halt(3, signal="SIGKILL")
    (verdict,) = job.run(20)
    assert "lack of memory" in verdict.summary
    job.oom = ("c0",)
    (verdict,) = job.run(5)
    assert "lack of memory" not in verdict.summary


def finishes(job: JobSeries) -> None:
    """The first rank ends half a minute before the last, which fails at it."""
    job.finish(1)
    job.run(10)
    job.finish(2)
    job.run(10)
    job.halt(3, code="1", error="RuntimeError")


def ends_as_zombie(job: JobSeries) -> None:
    """A launcher that waits for ranks in order leaves the others as zombies."""
    job.halt(3, "zombie", code="0")


def leaves_with_a_zombie(job: JobSeries) -> None:
    job.halt(3, "zombie", code="0")
    job.now += 5
    job.halt(2, "zombie", code="3")


def all_are_stopped(job: JobSeries) -> None:
    """The scheduler suspends a job."""
    for number in range(4):
        job.halt(number, "stopped")
        job.now += 2


def all_are_killed(job: JobSeries) -> None:
    for number in range(4):
        job.halt(number)


def is_debugged(job: JobSeries) -> None:
    job.halt(1, "traced")


def scales_down(job: JobSeries) -> None:
    """It starts again with three ranks; the fourth's heartbeat is left."""
    for number in range(4):
        job.halt(number)
    job.run(5)
    for number in range(3):
        job.ranks[number] = Rank(f"c{number}", size="3")


def moves(job: JobSeries) -> None:
    """It starts again without node c3, with as many ranks."""
    for number in range(4):
        job.halt(number)
    job.run(5)
    job.ranks["3/left"] = job.ranks.pop(3)
    job.ranks |= {0: Rank("c0"), 1: Rank("c1"), 2: Rank("c2"), 3: Rank("c9")}


def cannot_be_seen(job: JobSeries) -> None:
    """Of a rank only the heartbeat is seen, not its process."""
    job.ranks[3].state = ""


def exporter_restarts(job: JobSeries) -> None:
    job.cut_off = {"c3"}
    job.run(20)
    job.cut_off = set()


def finishes_unseen(job: JobSeries) -> None:
    """A node cannot be scraped while its rank ends; another rank fails at that."""
    job.cut_off = {"c1"}
    job.run(30)
    job.finish(1)
    job.cut_off = set()
    job.run(5)
    job.halt(3, code="1", error="RuntimeError")


def test_a_node_that_cannot_be_scraped_keeps_no_other_from_being_named(job: JobSeries) -> None:
    job.cut_off = {"c1"}
    job.run(300)
    job.halt(3)

    (verdict,) = job.run(30)

    assert ("c3", "rank_exited") == (verdict.node, verdict.class_name)


def test_scrapes_that_fail_now_and_then_keep_nobody_from_being_named(job: JobSeries) -> None:
    job.halt(3)
    named = []
    for second in range(0, 60, 5):
        job.cut_off = {f"c{second // 5 % 3}"}
        named += [verdict.node for verdict in job.ask()]
        job.now += ASKED_EVERY

    assert "c3" in named


@pytest.mark.parametrize(
    "happens",
    [
        finishes,
        ends_as_zombie,
        leaves_with_a_zombie,
        all_are_stopped,
        all_are_killed,
        is_debugged,
        scales_down,
        moves,
        cannot_be_seen,
        exporter_restarts,
        finishes_unseen,
    ],
)
def test_nobody_is_named_for_what_jobs_do(
    job: JobSeries, happens: Callable[[JobSeries], None]
) -> None:
    happens(job)
    for _ in range(20):
        assert not [verdict for verdict in job.ask() if verdict.names_node]
        job.now += ASKED_EVERY


def test_a_short_stop_is_nobodys_fault(job: JobSeries) -> None:
    job.halt(1, "stopped")
    job.run(10)
    job.ranks[1].state = "running"
    assert [] == job.run(30)


def test_those_that_end_because_of_the_first_are_victims(job: JobSeries) -> None:
    job.halt(3)
    job.now += 5
    job.halt(0, code="1", error="RuntimeError")
    (verdict,) = job.run(20)
    assert ("c3", (0, 1, 2)) == (verdict.node, verdict.victims)
    # It stays named when another one ends for it.
    job.halt(1, code="1", error="RuntimeError")
    assert ["c3"] == [verdict.node for verdict in job.run(5)]


def test_a_launcher_that_ends_its_other_ranks_leaves_one_verdict_with_the_reason() -> None:
    job = JobSeries({number: Rank(f"c{number // 4}", size="8") for number in range(8)})
    job.run(10)
    for number in (4, 5, 7):
        job.halt(number)
    job.halt(6, code="1", error="ValueError")
    (verdict,) = job.run(20)
    assert ("c1", 6) == (verdict.node, verdict.rank)
    assert "(and 3 more) ended with ValueError" in verdict.summary


def test_what_ends_half_of_the_nodes_at_once_is_no_nodes_fault(job: JobSeries) -> None:
    job.halt(0)
    job.halt(2)
    (verdict,) = job.run(20)
    assert ("", "undecided") == (verdict.node, verdict.confidence)


@pytest.mark.parametrize(
    ("first", "others"),
    [
        ({}, {"code": "1", "error": "RuntimeError"}),
        ({"signal": "SIGKILL"}, {"code": "1", "error": "RuntimeError"}),
        ({"code": "1", "error": "ValueError"}, {}),
        ({"code": "1", "error": "ValueError"}, {"code": "1", "error": "RuntimeError"}),
    ],
)
def test_the_rank_that_took_the_whole_job_with_it_ended_otherwise(
    job: JobSeries, first: dict[str, str], others: dict[str, str]
) -> None:
    for number in (1, 0, 3):
        job.halt(number, **others)
    job.halt(2, **first)
    job.now += 2
    assert [] == job.run(5)
    (verdict,) = job.run(20)
    assert ("c2", 2, "likely") == (verdict.node, verdict.rank, verdict.confidence)
    assert "; 3 ranks of the job ended otherwise." in verdict.summary


def test_a_job_that_takes_long_to_die_is_named_by_its_first_rank(job: JobSeries) -> None:
    """Seen on a busy machine: six ranks ended 5 to 24 s after the one that was killed."""
    job.halt(2, signal="SIGKILL")
    for number in (0, 3, 1):
        assert [] == job.run(10)
        job.halt(number, code="1", error="RuntimeError")
    (verdict,) = job.run(20)
    assert ("c2", 2, "likely") == (verdict.node, verdict.rank, verdict.confidence)


def is_cancelled_and_killed_later(job: JobSeries) -> None:
    """Slurm's way: SIGTERM to all, and SIGKILL for what is left after KillWait."""
    for number in (0, 1, 3):
        job.halt(number, signal="SIGTERM")
    job.run(10)
    job.now += 20
    job.halt(2, signal="SIGKILL")


def dies_for_minutes(job: JobSeries) -> None:
    job.halt(2)
    for number in (0, 1, 3):
        job.now += 45
        job.halt(number, code="1", error="RuntimeError")


def is_cancelled(job: JobSeries) -> None:
    """All are killed, but one that finished what it was at."""
    for number in range(3):
        job.halt(number)
    job.run(5)
    job.finish(3)


def dies_in_two_ways(job: JobSeries) -> None:
    job.halt(0, code="1", error="ValueError")
    job.halt(1, code="1", error="ValueError")
    job.halt(2)
    job.halt(3)


@pytest.mark.parametrize(
    "happens",
    [is_cancelled_and_killed_later, dies_for_minutes, is_cancelled, dies_in_two_ways],
)
def test_of_a_job_that_is_over_nobody_is_named_without_evidence(
    job: JobSeries, happens: Callable[[JobSeries], None]
) -> None:
    happens(job)
    assert [] == job.run(60)


def test_of_those_that_end_together_the_odd_one_was_first(job: JobSeries) -> None:
    job.halt(0, code="1", error="RuntimeError")
    job.halt(1, code="1", error="RuntimeError")
    job.halt(3)
    (verdict,) = job.run(20)
    assert ("c3", (0, 1, 2)) == (verdict.node, verdict.victims)


def test_a_rank_that_goes_on_is_named_no_more(job: JobSeries) -> None:
    job.halt(1, "stopped")
    assert 1 == len(job.run(20))
    job.ranks[1].state = "running"
    assert [] == job.run(5)


def test_a_rank_that_is_stopped_again_and_again_is_named(job: JobSeries) -> None:
    job.shares = {2: 0.5}
    assert [] == job.run(55)
    (verdict,) = job.run(10)
    assert ("c2", "rank_stopped", "likely") == (
        verdict.node,
        verdict.class_name,
        verdict.confidence,
    )
    assert "50 % of the last minute" in verdict.summary


def test_after_a_restart_of_the_detector_the_same_is_named_with_the_same_beginning(
    job: JobSeries,
) -> None:
    job.halt(3)
    (before,) = job.run(30)
    job.diagnoser = ProcessDiagnoser("llm")
    assert [before] == job.run(5)


@pytest.mark.parametrize("text", ["x", "-1", "\u00b2", "7" * 5000])
def test_a_rank_that_is_no_number_is_passed_over(job: JobSeries, text: str) -> None:
    job.ranks[text] = Rank("c1", "exited", job.now)
    assert [] == job.run(60)


def test_an_end_that_nobody_knows_when_it_was_is_seen_when_it_is(job: JobSeries) -> None:
    job.run(60)
    job.halt(3, signal="SIGKILL")
    job.ranks[3].since = math.nan
    (verdict,) = job.run(60)
    assert (3, job.now - 60) == (verdict.rank, verdict.start_time)


def test_a_number_of_ranks_that_is_none_is_passed_over(job: JobSeries) -> None:
    for rank in job.ranks.values():
        rank.size = "\u00b2"
    all_are_killed(job)
    assert [] == job.run(60)
