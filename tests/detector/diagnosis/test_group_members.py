"""Who is in a process group, as labels say."""

import tracemalloc

import pytest

from peerwatch_detector.diagnosis.collectives.members import Claims, parse_ranks, resolve


@pytest.mark.parametrize("text", ["0-9999999", "5,0-9999999", "0-9999999:2"])
def test_more_ranks_than_any_job_has_are_refused_before_they_are_listed(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="more than 1000000 ranks"):
            parse_ranks(text)
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()


def test_of_claims_that_as_many_make_the_same_stands_whatever_their_order() -> None:
    claims = [(frozenset({0, 1}), ""), (frozenset({1, 2}), "")]
    found = [resolve("g", Claims(order), ()) for order in (claims, claims[::-1])]
    assert found[0] == found[1]


def test_a_claim_that_does_not_stand_takes_no_ranks_from_others() -> None:
    claims = Claims({(frozenset(ranks), ""): 3 - ranks[0] for ranks in ((0, 1), (1, 2), (2, 3))})

    assert [{0, 1}, {2, 3}] == [set(group.members) for group in resolve("g", claims, ())]
