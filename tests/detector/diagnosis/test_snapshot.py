"""Two snapshots: only what is equal in both, ten seconds apart, stands."""

from dataclasses import replace

from detector.diagnosis.layouts import positions, snapshot
from peerwatch_detector.diagnosis.collectives.hang.hang import hangs
from peerwatch_detector.diagnosis.collectives.snapshot import Position, Snapshot, StableCounts

FIRST = snapshot("A: 0 9/8, 1 9/8, 2 8/8", {"A": range(3)})
LATER = replace(FIRST, time=FIRST.time + 10)


def stable_after(*reads: Snapshot) -> Snapshot:
    """Return what is stable after several reads."""
    stable = StableCounts()
    return [stable.update(read) for read in reads][-1]


def test_what_did_not_move_for_ten_seconds_stands():
    (root,) = hangs(stable_after(FIRST, LATER))

    assert (root.class_name, root.ranks, root.victims) == ("not_launched", (2,), (0, 1))


def test_two_reads_close_together_say_nothing():
    assert hangs(stable_after(FIRST, replace(FIRST, time=FIRST.time + 9.9))) == []


def test_a_rank_that_still_moves_is_not_to_blame():
    moved = replace(LATER, positions=positions("A: 0 9/8, 1 9/8, 2 8/7"))

    assert hangs(stable_after(FIRST, moved)) == []


def test_a_rank_in_only_one_of_the_reads_is_not_frozen():
    without = replace(FIRST, positions=positions("A: 0 9/8, 1 9/8"))

    assert hangs(stable_after(without, LATER)) == []


def test_a_rank_that_stopped_reporting_between_the_reads_is_not_yet_without_data():
    silent = replace(LATER, positions=positions("A: 0 9/8, 1 9/8"), silent=frozenset([2]))

    assert hangs(stable_after(FIRST, silent)) == []


def test_a_rank_that_reports_a_group_that_it_is_no_member_of_costs_only_itself():
    (root,) = hangs(snapshot("A: 0 9/8, 1 8/8, 7 3/2", {"A": (0, 1)}))

    assert root.ranks == (1,)


def test_the_first_collective_of_a_group_is_missed_where_a_member_shows_none():
    (root,) = hangs(snapshot("A: 0 1/0, 1 1/0; B: 2 5/5", {"A": range(3), "B": (2,)}))

    assert (root.ranks, root.victims) == ((2,), (0, 1))


def test_a_gap_in_a_rank_s_report_is_no_sign_against_it():
    (root,) = hangs(snapshot("A: 0 9/8, 1 9/8; B: 2 5/5", {"A": range(3), "B": (2,)}))

    assert (root.class_name, root.ranks) == ("network_stuck", ())


def test_a_job_of_one_rank_waits_for_nobody():
    assert hangs(snapshot("A: 0 9/9", {"A": (0,)})) == []


def test_devices_that_are_all_busy_leave_it_open():
    state = snapshot("A: 0 9/8, 1 9/8", {"A": (0, 1)})
    busy = {rank: replace(place, started=8) for rank, place in state.positions["A"].items()}

    (root,) = hangs(replace(state, positions={"A": busy}))

    assert (root.class_name, root.ranks, root.decided) == ("launched_not_started", (), False)


def test_an_idle_group_is_not_waited_in():
    state = snapshot("A: 0 9/8, 1 8/8", {"A": (0, 1)})

    assert hangs(replace(state, idle=frozenset(["A"]))) == []


def test_ranks_read_at_different_moments_must_stand_still_together():
    stable = StableCounts()
    stable.update(FIRST, {0: 1000, 1: 1000, 2: 1008})

    # Rank 1 was last read 9 s after the first read of rank 2.
    assert hangs(stable.update(LATER, {0: 1017, 1: 1017, 2: 1023})) == []
    (root,) = hangs(stable.update(LATER, {0: 1018, 1: 1018, 2: 1023}))
    assert root.ranks == (2,)


def test_a_group_that_only_launches_are_counted_of_and_nobody_uses_is_idle():
    stable = StableCounts()
    state = snapshot("A: 0 9/8, 1 9/8; B: 0 3/3, 1 3/3", {"A": (0, 1), "B": (0, 1)})
    blind = {
        name: {rank: Position(place.enqueued) for rank, place in ranks.items()}
        for name, ranks in state.positions.items()
    }
    first = replace(state, positions=blind)
    stable.update(first)
    hung = {**blind, "A": {0: Position(20), 1: Position(19)}}
    stable.update(replace(first, time=1070, positions=hung))

    state = stable.update(replace(first, time=1085, positions=hung))

    assert state.idle == {"B"}
    (root,) = hangs(state)
    assert (root.ranks, root.decided) == ((1,), True)
