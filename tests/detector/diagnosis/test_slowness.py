"""Slow jobs, worked out by hand, and the degradation of a job; S5 and S6 are in stragglers/."""

import numpy as np
import pytest

from peerwatch_detector.diagnosis.collectives.slowness.degradation import degradation
from peerwatch_detector.diagnosis.collectives.slowness.lateness import (
    Arrivals,
    align,
    compute_stragglers,
    late_ranks,
    typical,
)
from peerwatch_detector.diagnosis.collectives.slowness.slow_groups import common_nodes, slow_groups


def _arrivals(starts, ends=None) -> Arrivals:
    """Return one collective of milliseconds."""
    table = np.array([starts]) / 1000
    return Arrivals(
        tuple(range(len(starts))), table, None if ends is None else np.array([ends]) / 1000
    )


def test_s1_the_last_to_arrive_has_the_shortest_duration():
    arrivals = _arrivals([0, 1, 0.5, 38], [45, 45, 45, 45])

    assert late_ranks(arrivals, limit=0.010) == (3,)
    assert arrivals.transfer == pytest.approx([0.007])
    assert arrivals.lateness[0, 3] == pytest.approx(0.038)


def test_s1_a_clock_that_is_off_waits_as_long_as_the_others():
    arrivals = _arrivals([0, 1, 0.5, 38], [45, 46, 45.5, 83])

    assert late_ranks(arrivals, limit=0.010) == ()


def test_s2_arrivals_together_and_one_rail_that_takes_long():
    starts = _arrivals([0, 0.3, 0.9, 0.2])
    rails = {f"rail {index}": seconds for index, seconds in enumerate([7, 7, 7, 45, 7, 7, 7, 7])}

    assert late_ranks(starts, limit=0.010) == ()
    assert slow_groups(rails) == ("rail 3",)


def test_s3_the_node_that_all_slow_groups_have_in_common():
    slow = [("n0", "n1", "n2", "n3"), ("n2", "n4", "n5")]

    assert common_nodes(slow, [("n0", "n1", "n4")]) == ("n2",)


def test_s3_nodes_of_one_slow_group_cannot_be_told_apart():
    assert common_nodes([("n0", "n1", "n2")], [("n0", "n4")]) == ("n1", "n2")


def test_s4_the_smallest_group_decides():
    lateness = {
        "DP46": {4: 0.080, 6: 0.0},
        "DP57": {5: 0.080, 7: 0.0},
        "DP0123": {0: 0.0, 1: 0.001, 2: 0.0, 3: 0.0},
        "TP45": {4: 0.0, 5: 0.080},
    }
    # Here the groups of the replicas are larger, as they usually are.
    lateness["DP46"] |= {8: 0.0}
    lateness["DP57"] |= {9: 0.0}

    assert compute_stragglers(lateness, limit=0.010) == (5,)


def test_s4_among_groups_of_one_size_a_rank_that_is_on_time_anywhere_is_a_victim():
    lateness = {"DP46": {4: 0.080, 6: 0}, "DP57": {5: 0.080, 7: 0}, "TP45": {4: 0, 5: 0.080}}

    assert compute_stragglers(lateness, limit=0.010) == (5,)


def test_degradation_is_the_time_beyond_one_point_two_times_the_mean():
    # Mean 1.1, slow from 1.32 on: 0.68 s of 11 s.
    assert degradation(np.array([1.0] * 9 + [2.0])) == pytest.approx(0.68 / 11)


def test_an_even_pace_has_no_degradation():
    assert degradation(np.full(50, 0.4)) == 0
    assert degradation(np.array([])) == 0


def test_only_collectives_that_all_ranks_have_are_compared():
    ranks, table = align({0: {1: 10.0, 2: 11.0, 3: 12.0}, 1: {2: 11.5, 3: 12.5}}, at_most=1)

    assert ranks == (0, 1)
    assert table.tolist() == [[12.0, 12.5]]
    assert typical({"A": Arrivals(ranks, table)}) == {"A": {0: 0.0, 1: 0.5}}


def test_two_groups_have_no_typical_one():
    assert slow_groups({"a": 7.0, "b": 45.0}) == ()
