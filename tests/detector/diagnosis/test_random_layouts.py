"""Jobs of random layouts with one fault: it is named, and nobody who only waits."""

import pytest

from detector.diagnosis.training_layout import Trial, trial
from peerwatch_detector.diagnosis.collectives.hang.hang import hangs

EXPECTED = {
    "hung": "not_launched",
    "silent": "no_data",
    "dead": "rank_exited",
    "device": "launched_not_started",
}


def _check(case: Trial) -> None:
    roots = hangs(case.snapshot)
    named = [(root.class_name, root.ranks) for root in roots]

    assert named == [(EXPECTED[case.fault], (case.culprit,))]
    assert case.culprit not in roots[0].victims


@pytest.mark.parametrize("fault", sorted(EXPECTED))
def test_the_rank_is_named_and_no_victim(fault):
    for seed in range(25):
        _check(trial(seed, (fault,), limit=256))


def test_a_link_names_the_group_and_nobody():
    for seed in range(25):
        case = trial(seed, ("link",), limit=256)

        (root,) = hangs(case.snapshot)

        assert (root.class_name, root.ranks) == ("network_stuck", ())
        assert root.wait.group == case.group
