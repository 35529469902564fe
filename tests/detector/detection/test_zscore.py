from __future__ import annotations

import math

import numpy as np
import pytest

from peerwatch_detector.detection.zscores import outliers, toward, zscores


def test_scores_are_standard_deviations_from_the_mean_over_the_nodes() -> None:
    values = np.array([[1.0, 1.0, 1.0, 5.0], [2.0, 2.0, math.nan, 2.0]])
    root = math.sqrt(3.0)
    expected = [[-1 / root, -1 / root, -1 / root, root], [0, 0, math.nan, 0]]
    np.testing.assert_allclose(zscores(values), expected)


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        ("high", [False, False, True, False]),
        ("low", [True, False, False, False]),
        ("both", [True, False, True, False]),
    ],
)
def test_outliers_lie_beyond_the_threshold_on_the_harmful_side(
    direction: str, expected: list[bool]
) -> None:
    scores = np.array([[-2.5, 2.0, 2.5, math.nan]])
    assert [expected] == outliers(scores, 2.0, direction).tolist()


def test_direction_turns_deviations_so_that_positive_means_harm() -> None:
    values = np.array([[-1.0, 2.0]])
    assert [[-1.0, 2.0]] == toward(values, "high").tolist()
    assert [[1.0, -2.0]] == toward(values, "low").tolist()
    assert [[1.0, 2.0]] == toward(values, "both").tolist()


def test_five_nodes_never_pass_a_threshold_of_2() -> None:
    values = np.array([[0.0, 0.0, 0.0, 0.0, 1e6]])
    assert not outliers(zscores(values), 2.0, "both").any()
