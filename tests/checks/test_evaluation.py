"""Whether a value is what it should be."""

from __future__ import annotations

import random
from statistics import median

import pytest

from peerwatch_checks.evaluation import Reference, evaluate, limit_of, reference

EIGHT = (1.00, 1.01, 0.99, 1.02, 1.00, 1.01, 1.00, 2.00)


def test_the_worked_example() -> None:
    # Durations: MAD 0.005, limit 0.10 above the median, names only the last.
    limit = limit_of(EIGHT, 0.1, higher_is_better=False)

    assert median(EIGHT) + 0.1 == pytest.approx(limit, abs=0.002)
    assert [2.00] == [value for value in EIGHT if value > limit]


def test_what_scatters_is_given_more_room() -> None:
    values = (80.0, 90.0, 100.0, 110.0, 120.0)

    assert 100 - 3 * 1.4826 * 10 == pytest.approx(limit_of(values, 0.05))


def test_nothing_healthy_is_named_in_a_hundred_noisy_fleets() -> None:
    random.seed(20000)
    for _ in range(100):
        values = [random.gauss(10.0, 0.2) for _ in range(8)]
        for index, value in enumerate(values):
            others = values[:index] + values[index + 1 :]
            against = reference(others, (), 0.15)
            assert "pass" == evaluate(value, "GB/s", against, what="Copy", advice="Do.").status


@pytest.mark.parametrize(
    ("peers", "earlier", "floor", "expected"),
    [
        ((10.0,) * 4, (5.0,) * 9, 1.0, Reference(10.0, 9.0, "the median of 4 peers")),
        ((10.0,) * 3, (5.0,) * 9, 1.0, Reference(1.0, 1.0, "the configured limit", is_floor=True)),
        ((10.0,) * 3, (5.0,) * 9, None, Reference(5.0, 4.5, "the median of its last 9 runs")),
        ((), (5.0,) * 2, None, None),
    ],
    ids=["peers", "floor", "past", "nothing"],
)
def test_peers_come_first_then_the_limit_then_the_past(
    peers: tuple[float, ...], earlier: tuple[float, ...], floor: float | None, expected: Reference
) -> None:
    assert expected == reference(peers, earlier, 0.1, floor=floor)


@pytest.mark.parametrize(
    ("value", "status"), [(89.0, "fail"), (91.0, "pass"), (150.0, "pass")], ids=str
)
def test_only_the_bad_side_is_bad(value: float, status: str) -> None:
    against = reference((100.0,) * 8, (), 0.1)

    assert status == evaluate(value, "GB/s", against, what="Copy", advice="Do.").status


@pytest.mark.parametrize(("value", "status"), [(99.0, "fail"), (104.0, "warn"), (106.0, "pass")])
def test_close_to_an_absolute_limit_is_a_warning(value: float, status: str) -> None:
    against = reference((), (), 0.1, floor=100.0)

    assert status == evaluate(value, "GB/s", against, what="Copy", advice="Do.").status


def test_a_failure_says_value_limit_and_what_to_do() -> None:
    against = reference((100.0,) * 8, (), 0.1)

    outcome = evaluate(
        50.0, "GB/s", against, what="Copying memory", advice="Look for memory errors."
    )

    assert (
        "Copying memory: 50 GB/s; the median of 8 peers is 100, the limit 90. "
        "Look for memory errors." == outcome.message
    )
    assert (50.0, 100.0, "GB/s") == (outcome.value, outcome.expected, outcome.unit)


def test_a_value_that_nothing_is_known_of_is_only_measured() -> None:
    outcome = evaluate(50.0, "GB/s", None, what="Copying memory", advice="Do.")

    assert ("pass", None) == (outcome.status, outcome.expected)
    assert "measured only" in outcome.message


def test_no_number_is_no_measurement() -> None:
    with pytest.raises(ValueError, match="no measurement"):
        evaluate(float("nan"), "GB/s", None, what="Copy", advice="Do.")


def test_values_that_lie_far_apart_still_have_a_limit() -> None:
    values = (1.0, 20.0, 40.0, 100.0, 160.0, 200.0, 300.0)

    assert limit_of(values, 0.3) == 25.0
    assert limit_of(values, 0.9) == pytest.approx(10.0)
    assert limit_of(values, 0.3, higher_is_better=False) > 400.0
