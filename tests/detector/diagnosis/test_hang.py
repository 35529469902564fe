"""Ten jobs that stand, worked out by hand: who is named, who is a victim."""

from dataclasses import replace

from detector.diagnosis.layouts import EIGHT, all_reduce, snapshot, without_starts
from peerwatch_detector.diagnosis.collectives.hang.hang import Hang, hangs
from peerwatch_detector.diagnosis.collectives.hang.waits_for import Wait
from peerwatch_detector.diagnosis.collectives.signature import Signature
from peerwatch_detector.diagnosis.collectives.snapshot import Position, Snapshot


def _only(state: Snapshot) -> Hang:
    (root,) = hangs(state)
    return root


def _with(state: Snapshot, group: str, rank: int, **changes) -> Snapshot:
    changed = replace(state.positions[group][rank], **changes)
    group_positions = {**state.positions[group], rank: changed}
    return replace(state, positions={**state.positions, group: group_positions})


def _launched_on(state: Snapshot, group: str, *ranks: int) -> Snapshot:
    for rank in ranks:
        state = _with(state, group, rank, went_on=True)
    return state


ALL_LAUNCHED = without_starts(
    snapshot(
        "W: 0 69/68, 1 69/68, 2 69/68, 3 69/68; A: 0 60/59, 1 60/59; B: 2 60/59, 3 60/59",
        {"W": (0, 1, 2, 3), "A": (0, 1), "B": (2, 3)},
    )
)


def test_hosts_that_ran_ahead_and_launched_in_different_order_wait_for_each_other():
    """Over NCCL, of which only launches are known: rank 2 took its neighbour's first."""
    state = _launched_on(_launched_on(ALL_LAUNCHED, "W", 0, 1, 3), "B", 2)

    root = _only(state)

    assert (root.class_name, root.ranks, root.decided) == ("call_order", (2, 3), False)
    assert root.victims == (0, 1)


def test_hosts_that_ran_ahead_in_one_order_wait_for_the_network():
    state = _launched_on(ALL_LAUNCHED, "W", 0, 1, 2, 3)

    assert {root.class_name for root in hangs(state)} == {"network_stuck"}


def test_h1_the_rank_that_did_not_launch_is_named_through_all_its_groups():
    root = _only(
        snapshot(
            "TP45: 4 40/39, 5 39/39; PP04: 0 12/11, 4 11/11; PP15: 1 12/11, 5 11/11;"
            "DP02: 2 7/6, 0 6/6; DP13: 3 7/6, 1 6/6; DP46: 6 7/6, 4 6/6; DP57: 7 7/6, 5 6/6",
            EIGHT,
        )
    )

    assert (root.class_name, root.ranks, root.decided) == ("not_launched", (5,), True)
    assert root.victims == (0, 1, 2, 3, 4, 6, 7)


H2 = snapshot(
    "DP13: 1 7/6, 3 7/6; TP01: 0 41/40, 1 40/40; TP23: 2 41/40, 3 40/40; PP15: 5 12/11, 1 11/11;"
    "PP04: 4 12/11, 0 11/11; PP26: 6 12/11, 2 11/11; PP37: 7 12/11, 3 11/11",
    EIGHT,
)


def test_h2_a_collective_that_all_started_waits_for_the_network():
    root = _only(H2)

    assert (root.class_name, root.ranks, root.decided) == ("network_stuck", (), False)
    assert root.wait == Wait("network", "DP13", 7)
    assert root.victims == tuple(range(8))


def test_h2_work_requests_that_do_not_complete_name_the_rank():
    state = _with(_with(H2, "DP13", 1, requests=(20, 18)), "DP13", 3, requests=(20, 20))

    root = _only(state)

    assert (root.class_name, root.ranks, root.decided) == ("network_stuck", (1,), True)
    assert root.victims == (0, 2, 3, 4, 5, 6, 7)


def test_h3_the_minority_is_named_whoever_comes_first():
    state = snapshot("A: 0 9/8, 1 9/8, 2 9/8, 3 9/8", {"A": range(4)})
    for rank, size in enumerate((4096, 4096, 2048, 4096)):
        state = _with(state, "A", rank, signature=all_reduce(size))

    root = _only(state)

    assert (root.class_name, root.ranks, root.decided) == ("mismatch", (2,), True)
    assert root.victims == (0, 1, 3)


def test_h3_two_that_disagree_are_both_undecided():
    state = snapshot("A: 0 9/8, 1 9/8", {"A": range(2)})
    state = _with(state, "A", 0, signature=all_reduce(4096))
    state = _with(state, "A", 1, signature=Signature("all_gather", 4096, 8192, "Float"))

    root = _only(state)

    assert (root.class_name, root.ranks, root.decided) == ("mismatch", (0, 1), False)


def test_h4_the_dead_rank_comes_first_and_whoever_waits_through_another_is_a_victim():
    root = _only(
        snapshot(
            "DP46: 4 7/6; TP67: 7 41/40; PP26: 2 12/11; DP57: 5 7/6, 7 6/6",
            {name: EIGHT[name] for name in ("DP46", "TP67", "PP26", "DP57")},
            dead=[6],
        )
    )

    assert (root.class_name, root.ranks, root.decided) == ("rank_exited", (6,), True)
    assert root.victims == (2, 4, 5, 7)


def test_h5_ranks_that_wait_for_each_other_called_in_different_order():
    root = _only(snapshot("A: 0 10/9, 1 9/9; B: 0 19/19, 1 20/19", {"A": range(2), "B": range(2)}))

    assert (root.class_name, root.ranks, root.victims) == ("call_order", (0, 1), ())


def test_h6_no_report_is_no_death():
    root = _only(snapshot("T: 2 40/39; D: 0 7/6, 2 6/6", {"T": (2, 3), "D": (0, 2)}, silent=[3]))

    assert (root.class_name, root.ranks, root.decided) == ("no_data", (3,), False)
    assert root.victims == (0, 2)


H7 = snapshot("T: 2 40/39, 3 40/39; D: 1 7/6, 3 6/6", {"T": (2, 3), "D": (1, 3)})


def test_h7_the_device_that_did_not_start_what_was_launched():
    root = _only(_with(H7, "T", 2, started=39))

    assert (root.class_name, root.ranks, root.decided) == ("launched_not_started", (2,), True)
    assert root.victims == (1, 3)


def test_h7_a_source_that_only_counts_launches_names_nobody():
    blind = {
        name: {rank: Position(position.enqueued, None, None) for rank, position in ranks.items()}
        for name, ranks in H7.positions.items()
    }

    (root,) = hangs(replace(H7, positions=blind))

    assert (root.ranks, root.decided) == ((3,), False)


def test_h8_the_rank_behind_is_named_not_the_one_that_is_ahead():
    root = _only(
        snapshot(
            "D: 0 100/99, 1 99/99, 2 99/99, 3 99/99, 4 99/99, 5 99/99, 6 99/99, 7 99/99;"
            "T: 1 50/49, 2 50/49, 3 50/49, 4 50/49, 5 50/49, 6 50/49, 7 50/49, 8 49/49",
            {"D": range(8), "T": range(1, 9)},
        )
    )

    assert (root.class_name, root.ranks) == ("not_launched", (8,))
    assert root.victims == tuple(range(8))


def test_h9_the_side_whose_requests_do_not_complete():
    state = snapshot("D: 0 7/6, 8 7/6, 16 7/6, 24 7/6", {"D": (0, 8, 16, 24)})
    for rank in (0, 8, 16, 24):
        state = _with(state, "D", rank, requests=(5120, 4992 if rank == 16 else 5120))

    root = _only(state)

    assert (root.class_name, root.ranks, root.victims) == ("network_stuck", (16,), (0, 8, 24))


def test_h10_two_faults_are_two_roots():
    state = snapshot("A: 0 5/4, 1 4/4; B: 2 5/4, 3 4/4", {"A": (0, 1), "B": (2, 3)})

    assert [(root.ranks, root.victims) for root in hangs(state)] == [((1,), (0,)), ((3,), (2,))]


GLOO = snapshot(
    "ALL: 0 758/756, 1 758/756, 2 757/756, 3 758/757, 4 758/757, 5 758/757;"
    "P23: 2 251/251, 3 251/251",
    {"ALL": range(6), "P23": (2, 3)},
)


def test_gloo_that_notes_an_end_late_does_not_hide_who_did_not_launch():
    """Seen live: a rank looped before a collective, the one before had ended for three of six."""
    root = _only(without_starts(GLOO))

    assert (root.class_name, root.ranks, root.decided) == ("not_launched", (2,), True)
    assert root.victims == (0, 1, 3, 4, 5)


def test_an_end_at_one_rank_says_nothing_while_another_has_not_launched():
    """The leaf of a reduce is done before its root, and before a leaf that is late."""
    state = snapshot("R: 0 7/6, 1 7/7, 2 6/6", {"R": range(3)})

    root = _only(without_starts(state))

    assert (root.class_name, root.ranks) == ("not_launched", (2,))
    assert root.victims == (0,)
