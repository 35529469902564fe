"""Each step of the algorithm is a function of observations."""

from collections.abc import Sequence

import pytest

from detector.diagnosis.root.failed_job import JOB, NODES, ev, line, lost_connection, timeouts
from peerwatch_checks.segments.division import Segment, divided
from peerwatch_detector.diagnosis.root.algorithm.config_check import odd_settings
from peerwatch_detector.diagnosis.root.algorithm.critical import critical_errors, weak_errors
from peerwatch_detector.diagnosis.root.algorithm.distributed import (
    Complaint,
    complaints,
    distributed_errors,
    peer_of,
    touched_by_all,
)
from peerwatch_detector.diagnosis.root.algorithm.episode import Episode, episode
from peerwatch_detector.diagnosis.root.algorithm.net_diag import Unreachable, unreachable
from peerwatch_detector.diagnosis.root.algorithm.offline import halves, plan
from peerwatch_detector.diagnosis.root.algorithm.program import (
    platform_end,
    program_error,
    storage_error,
)
from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.taxonomy.rules import rule_book

STALLED = ev(0, "step", "stalled")


def seen(*evidence: Evidence) -> Episode:
    return episode(evidence, rule_book(), float("inf"), "")


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([0.0, 20.0], 0.0),
        ([-5000.0, 0.0, 20.0], 0.0),
        ([-800.0, 0.0], -800.0),
    ],
)
def test_a_failure_begins_with_the_first_of_its_signs(times: list[float], expected: float) -> None:
    signs = [line(time, "missing_module", "U", 0) for time in times]

    assert expected == seen(*signs).begun


def test_a_time_out_began_as_long_before_as_it_says() -> None:
    said = line(900, "collective_timeout", "D", 0, text="WorkNCCL(..., Timeout(ms)=300000)")
    long = line(1900, "collective_timeout", "D", 0, text="WorkNCCL(..., Timeout(ms)=1800000)")

    assert 600.0 == seen(said).begun
    assert 300.0 == seen(line(900, "collective_timeout", "D", 0)).begun
    # Whatever else was seen when it began belongs to it.
    silent = ev(118, "collective", "not_launched", "n3", rank=24)
    broken = ev(70, "kernel", "fabric_manager_fatal", "n3", class_name="H")
    known = seen(broken, silent, long)
    assert 100.0 == known.begun
    assert {"kernel", "collective", "log"} == {each.evidence.kind for each in known.observations}


def test_a_pause_that_has_passed_is_not_the_failure() -> None:
    known = seen(
        ev(-300, "kernel", "nfs_not_responding", "n0", class_name="S"),
        ev(-290, "step", "stalled"),
        ev(-60, "step", "resumed"),
        STALLED,
        ev(0, "xid", "48", "n1"),
    )

    assert ["nfs_not_responding"] == [each.evidence.name for each in known.recovered]
    assert [("n1",)] == [cause.nodes for cause in critical_errors(known, JOB)]


def test_several_signs_of_one_node_are_one_cause() -> None:
    (cause,) = critical_errors(
        seen(
            STALLED, ev(0, "xid", "74", "n1"), ev(1, "xid", "79", "n1"), ev(2, "gpu", "lost", "n1")
        ),
        JOB,
    )

    assert ("gpu_off_bus", 3) == (cause.main.rule.name, len(cause.speaks_for))


def test_a_failed_remapping_asks_for_a_new_part() -> None:
    (cause,) = critical_errors(
        seen(STALLED, ev(-1, "xid", "48", "n1"), ev(0, "xid", "64", "n1")), JOB
    )

    assert "replace" == cause.action


@pytest.mark.parametrize(("name", "nodes"), [("fatal", [("n1",)]), ("nonfatal", [])])
def test_what_fabric_manager_recovered_from_is_no_cause(
    name: str, nodes: list[tuple[str, ...]]
) -> None:
    said = ev(0, "kernel", f"fabric_manager_{name}", "n1")

    assert nodes == [cause.nodes for cause in critical_errors(seen(STALLED, said), JOB)]


def test_an_absent_node_whose_ranks_go_on_is_there() -> None:
    gone = ev(-60, "absent", "absent", "n1")
    alive = line(100, "collective_timeout", "D", 8)

    assert () == critical_errors(seen(STALLED, gone, alive), JOB)
    assert 1 == len(critical_errors(seen(STALLED, gone), JOB))


def test_a_link_that_fell_after_the_complaints_is_no_cause() -> None:
    down = ev(50, "kernel", "nic_link_down", "n1", class_name="N")

    assert () == weak_errors(seen(STALLED, *lost_connection("n4", 0), down), JOB)


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ({"peer_node": "n2"}, "n2"),
        ({"peer_rank": 17}, "n2"),
        ({"peer_rank": 9_999}, ""),
        ({"peer_address": "10.0.0.2"}, "n2"),
        ({"peer_address": "10.0.0.2:4471"}, "n2"),
        ({"peer_address": "10.0.0.2<4471>"}, "n2"),
        ({"peer_address": "10.9.9.9"}, ""),
        ({}, ""),
    ],
)
def test_a_peer_is_known_by_name_rank_or_address(peer: dict[str, object], expected: str) -> None:
    assert expected == peer_of(line(0, "x", "D", 0, **peer), JOB)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], None),
        ([("a", "b", 0)], None),
        ([("a", "c", 0), ("b", "c", 1)], ("c", 2, 1.0, False)),
        ([("c", "a", 0), ("c", "b", 0)], ("c", 2, 1.0, False)),
        ([("a", "c", 0), ("b", "c", 1), ("d", "a", 60), ("e", "b", 61)], ("c", 2, 0.5, True)),
        ([("a", "b", 0), ("b", "c", 0), ("c", "a", 0)], None),
        ([("a", "b", 0), ("c", "d", 0)], None),
    ],
)
def test_the_node_that_all_touch_is_the_root(
    pairs: Sequence[tuple[str, str, float]], expected: tuple[object, ...] | None
) -> None:
    touched = touched_by_all([Complaint(*each) for each in pairs])
    shown = touched and (touched.node, touched.others, touched.share, touched.first)

    assert expected == shown


def test_complaints_are_counted_once_and_not_those_about_the_store() -> None:
    known = seen(
        line(0, "nccl_connection_closed", "D", 0, peer_rank=8),
        line(1, "nccl_connection_closed", "D", 1, peer_rank=9),
        line(2, "store_unreachable", "D", 60, peer_rank=0),
    )

    assert (Complaint("n0", "n1", 0.0),) == complaints(known, JOB)
    assert ["n0", "n7"] == list(distributed_errors(known, JOB))


def test_a_node_in_a_minority_is_found_and_a_mixed_job_is_not() -> None:
    odd = ev(-9, "config", "nic_mtu", "n2")
    mixed = [ev(-9, "config", "driver_version", node) for node in NODES[:4]]
    harmless = ev(-9, "config", "kernel_release", "n5")

    assert ["n2"] == list(odd_settings(seen(STALLED, odd, *mixed, harmless), JOB))


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], None),
        ([("n1", "n0"), ("n2", "n1"), ("n1", "n6")], Unreachable("node", "n1", 3)),
        ([("n0", "n4"), ("n1", "n5"), ("n2", "n6")], Unreachable("place", "leaf l0", 3)),
        ([("n0", "n4")], Unreachable("path", "n0 - n4", 1)),
    ],
)
def test_lost_pings_have_a_node_a_place_or_a_path_in_common(
    pairs: Sequence[tuple[str, str]], expected: Unreachable | None
) -> None:
    lost = [ev(5, "reach", "lost", a, peer_node=b) for a, b in pairs]

    assert expected == unreachable(seen(STALLED, *lost), JOB)


def test_checks_begin_with_the_suspects_and_end_with_parts_by_place() -> None:
    *each_by_itself, together = plan(JOB, ["n5", "not-of-the-job"])

    assert [("full", ("n5",)), ("full", (*NODES[:5], *NODES[6:]))] == [
        (run.check, run.nodes) for run in each_by_itself
    ]
    assert ("offline", NODES) == (together.check, together.nodes)
    assert together.why.endswith(": leaf l0 (4), leaf l1 (4)")
    assert {"leaf l0": NODES[:4], "leaf l1": NODES[4:]} == dict(together.parts)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [(("a",), ["full"]), (("a", "b"), ["full", "pair"]), (("a", "b", "c"), ["full", "offline"])],
)
def test_few_nodes_are_checked_as_far_as_they_can_be(
    nodes: tuple[str, ...], expected: list[str]
) -> None:
    assert expected == [run.check for run in plan(JobPlaces(nodes))]


@pytest.mark.parametrize("places", [JOB.places, {}])
def test_the_parts_are_those_on_which_peerwatch_check_trains(
    places: dict[str, dict[str, str]],
) -> None:
    whole = Segment("all nodes", NODES)

    assert [nodes for _, nodes in halves(JobPlaces(NODES, places=places), NODES)] == [
        part.nodes for part in divided(whole, places)
    ]


def test_whose_fault_it_is_depends_on_what_came_first() -> None:
    wrong = line(0, "missing_module", "U", 0)
    full = line(-1, "storage_full", "S", 0)
    late = [line(60, "missing_module", "U", 0), line(60, "storage_full", "S", 0)]
    known = seen(wrong, full, *timeouts(50))
    after = seen(*lost_connection("n1", 0), *late)

    assert program_error(known, JOB) is not None
    assert storage_error(known, JOB) is not None
    assert program_error(after, JOB) is None
    assert storage_error(after, JOB) is None
    assert platform_end(seen(ev(0, "job", "preempted"), wrong)) is not None
    assert platform_end(seen(ev(9, "job", "cancelled"), wrong)) is None
