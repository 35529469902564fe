"""Algorithm 1 names the root of a failure, its victims never, and nobody where it is open."""

import pytest

from detector.diagnosis.root.failed_job import (
    JOB,
    NODES,
    ev,
    exits,
    line,
    lost_connection,
    root_of,
    timeouts,
)
from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence
from peerwatch_detector.diagnosis.root.text import summary_text

XID_79 = ev(-4, "xid", "79", "n3", gpu="3")
STALLED = ev(0, "step", "stalled")


def test_a_critical_error_names_its_node_and_the_page_says_what_followed() -> None:
    root = root_of(XID_79, STALLED, *lost_connection("n3", 0), *exits(30))

    (cause,) = root.causes
    assert (("n3",), "gpu_unavailable", "hardware", "isolate", "sure") == (
        cause.nodes,
        cause.symptom,
        cause.domain,
        cause.action,
        cause.confidence,
    )
    assert (
        "Isolate n3 and restart: GPU 3 fell off the bus (XID 79), 4 s before 2 ranks lost their "
        "connection to it."
    ) == summary_text(cause, root, JOB)
    assert ["CriticalError"] == [step.name for step in root.path]


def test_two_faults_at_once_are_two_causes() -> None:
    root = root_of(XID_79, ev(3, "xid", "48", "n6", gpu="0"), STALLED, *lost_connection("n3", 0))

    assert [("n3",), ("n6",)] == [cause.nodes for cause in root.causes]


@pytest.mark.parametrize("xid", ["13", "31", "43", "45"])
def test_what_a_program_causes_on_its_gpu_isolates_nobody(xid: str) -> None:
    root = root_of(
        *[line(0.01 * r, "cuda_illegal_memory_access", "U", r) for r in range(64)],
        *[ev(0.5, "xid", xid, node, gpu="1") for node in NODES],
        STALLED,
        *exits(5),
    )

    (cause,) = root.causes
    assert ((), "user", "ask") == (cause.nodes, cause.domain, cause.action)


def test_the_same_gpu_in_several_jobs_is_suspected() -> None:
    root = root_of(
        ev(-90_000, "xid", "31", "n2", gpu="5"),
        ev(-3_000, "job", "started"),
        ev(0, "xid", "31", "n2", gpu="5"),
        line(0.2, "cuda_illegal_memory_access", "U", 21, gpu="5"),
        *lost_connection("n2", 1),
    )

    (cause,) = root.causes
    assert (("n2",), "hardware", "drain") == (cause.nodes, cause.domain, cause.action)


def test_an_exception_of_all_ranks_is_the_users() -> None:
    root = root_of(
        *[line(0.01 * rank, "program_error", "U", rank) for rank in range(64)],
        ev(1, "log", "nccl_remote_error", "n1", class_name="D", rank=9, peer_rank=0),
        *exits(3),
    )

    (cause,) = root.causes
    assert ("user_code", "user", "ask", "sure") == (
        cause.symptom,
        cause.domain,
        cause.action,
        cause.confidence,
    )


def test_an_exception_that_follows_a_lost_connection_is_not() -> None:
    evidence = [*lost_connection("n5", 0), line(9, "python_exception", "U", 0), *exits(30)]
    (cause,) = root_of(*evidence).causes

    assert (("n5",), "likely", "inspect") == (cause.nodes, cause.confidence, cause.action)


def test_a_node_that_no_longer_answers_transfers_is_isolated() -> None:
    lost = [
        line(0.1 * i, "nccl_ib_retry_exceeded", "N", 8 * i, peer_rank=41) for i in (0, 1, 2, 3, 6)
    ]
    (cause,) = root_of(STALLED, *lost, *exits(30)).causes

    assert (("n5",), "infiniband_link", "isolate") == (cause.nodes, cause.symptom, cause.action)


def test_a_repaired_node_is_left_in_peace() -> None:
    root = root_of(
        ev(-400, "xid", "79", "n7"),
        ev(-300, "boot", "planned", "n7"),
        ev(-200, "job", "started"),
        *[line(0.01 * rank, "missing_module", "U", rank) for rank in range(64)],
    )

    assert [()] == [cause.nodes for cause in root.causes]
    assert ["79"] == [each.evidence.name for each in root.episode.recovered]


@pytest.mark.parametrize(
    ("boots", "recovered"),
    [([-500, -300], ["boot", "79"]), ([-300, 50], ["79"]), ([-500], []), ([50], []), ([], [])],
)
def test_an_error_has_passed_if_its_node_was_started_between_it_and_the_failure(
    boots: list[float], recovered: list[str]
) -> None:
    root = root_of(
        STALLED,
        ev(-400, "xid", "79", "n7"),
        *[ev(time, "boot", "boot", "n7") for time in boots],
        ev(-300, "boot", "boot", "n6"),
        *timeouts(600),
    )

    assert recovered == [each.evidence.name for each in root.episode.recovered]


@pytest.mark.parametrize("name", ["preempted", "cancelled", "time_limit"])
def test_the_end_of_a_job_by_the_scheduler_is_nobodys_fault(name: str) -> None:
    (cause,) = root_of(ev(0, "job", name), *lost_connection("n1", 1), *exits(2)).causes

    assert ((), "none", "none") == (cause.nodes, cause.domain, cause.action)


def test_a_switch_that_takes_its_nodes_away_isolates_none_of_them() -> None:
    down = [ev(0.1 * i, "kernel", "nic_link_down", NODES[i], class_name="N") for i in range(4)]
    (cause,) = root_of(*down, STALLED, *timeouts(600)).causes

    assert ((), "leaf l0", "ask") == (cause.nodes, cause.place, cause.action)


def test_timeouts_everywhere_name_nobody_and_plan_checks_by_leaf() -> None:
    root = root_of(STALLED, *timeouts(600))

    (cause,) = root.causes
    assert ((), "unknown", "undecided", "inspect") == (
        cause.nodes,
        cause.domain,
        cause.confidence,
        cause.action,
    )
    expected = ["CriticalError", "program and storage", "DistError", "RootDiag", "ConfigCheck"]
    assert [*expected, "NetDiag", "OfflineDiag"] == [step.name for step in root.path]
    assert [("full", 8), ("offline", 8)] == [(run.check, len(run.nodes)) for run in root.checks]


def test_a_verdict_about_collectives_names_the_node_that_time_outs_do_not() -> None:
    hang = ev(40, "collective", "not_launched", "n4", rank=33, class_name="sure")
    (cause,) = root_of(STALLED, hang, *timeouts(600)).causes

    assert (("n4",), "hang", "inspect") == (cause.nodes, cause.symptom, cause.action)


def test_a_rank_that_ends_without_a_word_isolates_no_host() -> None:
    end = ev(-0.5, "process", "exited", "n3", rank=25, value=1.0)
    killed = [
        ev(40 + 0.01 * rank, "process", "killed", JOB.ranks[rank], rank=rank, text="SIGKILL")
        for rank in JOB.ranks
    ]
    (cause,) = root_of(STALLED, end, *lost_connection("n3", 0), *killed).causes

    assert (("n3",), "restart") == (cause.nodes, cause.action)


def test_two_nodes_that_complain_about_each_other_are_examined() -> None:
    pair = [
        line(0, "nccl_ib_retry_exceeded", "N", 8, peer_rank=40),
        line(1, "nccl_ib_retry_exceeded", "N", 40, peer_rank=8),
    ]
    root = root_of(STALLED, *pair)

    (cause,) = root.causes
    assert (("n1", "n5"), "inspect", "undecided") == (cause.nodes, cause.action, cause.confidence)
    assert "they complain about each other" in summary_text(cause, root, JOB)


def test_who_reports_a_node_failure_is_not_the_node_that_failed() -> None:
    said = ev(1, "log", "slurm_node_failure", "n2", class_name="P")

    assert not any("n2" in cause.nodes for cause in root_of(STALLED, said, *exits(2)).causes)


def test_a_node_with_a_wrong_clock_fails_alone() -> None:
    odd = ev(-900, "config", "time_synchronised", "n6", class_name="minority")
    failed = [line(0.1 * r, "python_exception", "U", r) for r in range(48, 56)]
    (cause,) = root_of(odd, *failed, *exits(9)).causes

    assert (("n6",), "configuration", "software") == (cause.nodes, cause.symptom, cause.domain)


def test_evidence_that_contradicts_itself_isolates_nobody() -> None:
    hang = ev(40, "collective", "not_launched", "n4", rank=33, class_name="likely")
    root = root_of(STALLED, hang, *lost_connection("n1", 60))

    assert [()] == [cause.nodes for cause in root.causes]
    assert {"n1", "n4"} == set(root.checks[0].nodes)


def test_a_minority_in_its_settings_supports_what_is_seen() -> None:
    config = ev(-900, "config", "nccl_version", "n6", class_name="minority")
    slow = ev(-50, "finding", "pfc_tx_rate", "n6")
    (cause,) = root_of(STALLED, config, slow, *timeouts(600)).causes

    assert (("n6",), "configuration", "software") == (cause.nodes, cause.symptom, cause.domain)


def test_pings_that_one_node_loses_name_it() -> None:
    lost = [ev(30, "reach", "lost", "n2", peer_node=other) for other in NODES if other != "n2"]
    (cause,) = root_of(STALLED, *lost, *timeouts(600)).causes

    assert (("n2",), "infiniband_link") == (cause.nodes, cause.symptom)


def test_shared_storage_is_no_nodes_fault() -> None:
    silent = [
        ev(0.1 * i, "kernel", "nfs_not_responding", n, class_name="S") for i, n in enumerate(NODES)
    ]
    (cause,) = root_of(*silent, ev(5, "step", "stalled"), *timeouts(600)).causes

    assert ((), "filesystem_mount", "software") == (cause.nodes, cause.symptom, cause.domain)


def test_a_job_of_which_nothing_is_wrong_has_no_cause() -> None:
    root = root_of(ev(-5, "xid", "63", "n0"), ev(0, "step", "first"))

    assert ((), ()) == (root.causes, root.path)


@pytest.mark.parametrize("until", [-3.0, 1.0, 25.0, 1000.0])
def test_later_evidence_is_not_known_yet(until: float) -> None:
    evidence: list[Evidence] = [XID_79, STALLED, *lost_connection("n3", 0), *exits(30)]
    named = {n for cause in root_of(*evidence, until=until).causes for n in cause.nodes}

    assert named == ({"n3"} if until >= 0 else set())


def test_an_unknown_xid_is_named_as_such() -> None:
    root = root_of(ev(-1, "xid", "998", "n0"), STALLED, *timeouts(600))

    assert not any(cause.nodes for cause in root.causes)
    assert any("XID 998" in text for text in root.missing)
