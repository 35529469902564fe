"""Work requests that are posted and complete late name the rank whose network is slow."""

from __future__ import annotations

import pytest

from detector.diagnosis.transfer_series import TransferJob

GROUPS = {"DP-0": (0, 2, 4, 6), "DP-1": (1, 3, 5, 7)}
EVEN = dict.fromkeys(range(8), 4.0)
TIMES = dict.fromkeys(GROUPS, 0.007)


def job(in_flight: dict[int, float], requests: float = 400.0) -> TransferJob:
    return TransferJob(GROUPS, TIMES, in_flight=in_flight, requests=requests)


def test_a_rank_whose_requests_complete_late_is_named_with_its_node() -> None:
    (verdict,) = job(EVEN | {4: 40.0}).diagnosed()

    assert ("communication_straggler", "n4", 4, "likely", True) == (
        verdict.class_name,
        verdict.node,
        verdict.rank,
        verdict.confidence,
        verdict.names_node,
    )
    assert 4 not in verdict.victims
    assert "40 of its work requests in group DP-0 are posted and not completed" in verdict.summary
    assert "they take 100 ms, those of its 3 peers 10 ms" in verdict.summary


@pytest.mark.parametrize(
    "in_flight",
    [
        pytest.param(EVEN, id="all alike"),
        pytest.param(EVEN | {4: 9.0}, id="twice as late is the rank of a busy step"),
        pytest.param(EVEN | {4: 40.0, 6: 30.0}, id="two are late: a switch or a rail"),
        pytest.param(EVEN | {4: 40.0, 5: 40.0}, id="one of each group: no single rank"),
        pytest.param({4: 1.0}, id="one request that was caught between post and completion"),
        pytest.param(dict.fromkeys(range(8), 400.0), id="a fabric that is slow for all"),
    ],
)
def test_nobody_is_named_where_no_single_rank_is_late(in_flight: dict[int, float]) -> None:
    assert [] == job(in_flight).diagnosed()


def test_without_these_series_nothing_is_said() -> None:
    assert [] == job({4: 40.0}, requests=0.0).diagnosed()


def test_a_group_of_two_does_not_say_which_is_late() -> None:
    pair = TransferJob({"PP-0": (0, 1)}, {"PP-0": 0.007}, in_flight={0: 1.0, 1: 40.0}, requests=400)

    assert [] == pair.diagnosed()
