"""Ranks that end by their program, and those that are done before others: no node is to blame."""

from __future__ import annotations

import pytest

from detector.diagnosis.rank_series import ASKED_EVERY, START, JobSeries, Rank
from peerwatch_detector.diagnosis.findings import EvidenceFindings
from peerwatch_detector.diagnosis.processes.process_diagnoser import GRACE_SECONDS


@pytest.fixture
def job() -> JobSeries:
    job = JobSeries()
    assert [] == job.run(60)
    return job


@pytest.mark.parametrize(
    ("error", "domain", "action", "severity"),
    [
        ("ValueError", "user", "ask", "warning"),
        ("RuntimeError", "user", "ask", "warning"),
        ("torch.OutOfMemoryError", "user", "ask", "warning"),
        ("torch.AcceleratorError", "unknown", "restart", "critical"),
        ("OSError", "unknown", "restart", "critical"),
    ],
)
@pytest.mark.parametrize("state", ["exited", "zombie", "sleeping"])
def test_an_exception_is_the_programs_and_isolates_no_node(
    job: JobSeries, error: str, domain: str, action: str, severity: str, state: str
) -> None:
    job.halt(2, state, code="1", error=error)
    (verdict,) = job.run(20)

    assert (2, "c2", domain) == (verdict.rank, verdict.node, verdict.domain)
    assert (action, domain != "user") == (verdict.action, verdict.names_node)
    assert severity == verdict.severity
    assert (domain == "user") == ("The program failed, not the node." in verdict.summary)


def test_a_rank_whose_process_outlives_its_program_is_named_before_those_that_end_of_it(
    job: JobSeries,
) -> None:
    """Over NCCL the others wait, and are ended one by one when the watchdog gives up."""
    job.halt(2, "running", error="ValueError")
    (verdict,) = job.run(20)
    assert ("rank_exited", 2, "c2") == (verdict.class_name, verdict.rank, verdict.node)
    assert "ended with ValueError, and its process is still there" in verdict.summary
    job.halt(3, "zombie", signal="SIGABRT")
    (verdict,) = job.run(30)
    assert (2, "c2") == (verdict.rank, verdict.node)


def test_ranks_that_lost_a_killed_one_on_their_node_do_not_make_it_the_programs() -> None:
    job = JobSeries({number: Rank(f"c{number // 4}", size="8") for number in range(8)})
    job.run(10)
    for number in (4, 5, 7):
        job.halt(number, code="1", error="RuntimeError")
    job.halt(6)
    (verdict,) = job.run(20)
    assert ("c1", 6, "unknown", True) == (
        verdict.node,
        verdict.rank,
        verdict.domain,
        verdict.names_node,
    )


@pytest.mark.parametrize("work", ["written", "steps"])
def test_a_rank_that_is_done_before_others_that_work_on_is_not_missed(
    job: JobSeries, work: str
) -> None:
    """``os._exit(0)``: neither its exit code nor its heartbeat tell that it finished."""
    job.halt(3)
    for second in range(12):
        getattr(job, work)[0] = 1e8 * second
        assert [] == job.run(ASKED_EVERY)
    # The others are done, too.
    job.finish(0, 1, 2)
    for _ in range(20):
        assert [] == job.ask()
        job.now += ASKED_EVERY


def test_a_rank_is_missed_once_the_others_stand(job: JobSeries) -> None:
    job.halt(3)
    for second in range(4):
        job.steps[0] = 100.0 + second
        assert [] == job.run(ASKED_EVERY)
    (verdict,) = job.run(GRACE_SECONDS)
    assert ("c3", True) == (verdict.node, verdict.names_node)


def test_a_rank_without_the_hook_that_is_gone_without_a_trace_is_a_question() -> None:
    job = JobSeries(hooked=False)
    job.run(20)
    job.finish(3)
    assert [] == job.run(60)
    (verdict,) = job.run(70)
    assert ("c3", 3, "unknown", "undecided") == (
        verdict.node,
        verdict.rank,
        verdict.domain,
        verdict.confidence,
    )
    assert (0, 1, 2) == verdict.victims
    assert not verdict.names_node


def test_a_rank_whose_hook_took_its_heartbeat_away_has_finished(job: JobSeries) -> None:
    job.finish(3)
    assert [] == job.run(300)


def test_the_failure_of_a_program_is_a_finding_that_needs_no_page(job: JobSeries) -> None:
    findings = EvidenceFindings("llm")
    job.halt(2, code="1", error="ValueError")
    verdicts = job.run(20)

    (finding,) = findings.update(verdicts, job.now)
    assert ("c2", "warning", START + 60) == (finding.node, finding.severity, finding.since)
    # Once is enough.
    assert [] == findings.update(verdicts, job.now)


def test_a_fault_of_a_node_is_none_of_the_program(job: JobSeries) -> None:
    job.halt(3, signal="SIGKILL")
    (finding,) = EvidenceFindings("llm").update(job.run(20), job.now)
    assert ("c3", "critical") == (finding.node, finding.severity)


def test_ranks_that_do_not_call_the_same_end_by_the_program_and_no_rank_is_wrong(
    job: JobSeries,
) -> None:
    """As gloo ends them: who got too much is aborted, the others lose their connection to it."""
    job.mismatch[2] = job.now - 0.1
    job.halt(2, signal="SIGABRT")
    for number in (0, 1, 3):
        job.halt(number, code="1", error="RuntimeError")
    ended, mismatch = sorted(job.run(20), key=lambda each: each.class_name, reverse=True)

    assert ("rank_exited", "c2", "user", "ask", "warning") == (
        ended.class_name,
        ended.node,
        ended.domain,
        ended.action,
        ended.severity,
    )
    assert ("mismatch", "", None, "user", "likely", None) == (
        mismatch.class_name,
        mismatch.node,
        mismatch.rank,
        mismatch.domain,
        mismatch.confidence,
        mismatch.severity,
    )
    assert (0, 1, 2, 3) == mismatch.victims
    assert "rank 2 on node c2 got what it did not expect" in mismatch.summary


def test_a_mismatch_of_an_earlier_start_says_nothing_about_a_rank_that_is_killed(
    job: JobSeries,
) -> None:
    job.mismatch[2] = job.now - 300
    job.halt(3, signal="SIGKILL")
    (verdict,) = job.run(20)

    assert ("rank_exited", "c3", True) == (verdict.class_name, verdict.node, verdict.names_node)
