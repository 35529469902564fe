"""What an opinion may be."""

import pytest

from peerwatch_responder.retry.opinion import ModelOpinion


@pytest.mark.parametrize(
    ("retry", "confidence", "lines"),
    [(1.1, 0.5, ("x",)), (0.5, -0.1, ("x",)), (float("nan"), 0.5, ("x",)), (0.5, 0.5, ())],
)
def test_impossible_opinions_are_refused(retry, confidence, lines):
    with pytest.raises(ValueError, match=r"retry|confidence|lines"):
        ModelOpinion(retry, confidence, 0.1, lines, "m")
