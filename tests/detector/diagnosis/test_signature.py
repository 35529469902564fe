"""What counts as the same collective."""

import pytest

from peerwatch_detector.diagnosis.collectives.signature import (
    Signature,
    disagreement,
    elements,
    operation,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gloo:all_reduce", "all_reduce"),
        ("nccl:_all_gather_base", "all_gather"),
        ("nccl:reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("all_to_all", "all_to_all"),
    ],
)
def test_variants_of_an_operation_are_one(name, expected):
    assert operation(name) == expected


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ("[1024,512]", 524288),
        ("[64,64];[10]", 4106),
        ("4096", 4096),
        ("[]", None),
        ("", None),
        ("garbage", None),
    ],
)
def test_elements_of_sizes(sizes, expected):
    assert elements(sizes) == expected


def test_tensors_of_other_shape_and_equal_size_match():
    calls = {0: Signature("all_reduce", elements("[64,64]")), 1: Signature("all_reduce", 4096)}

    assert disagreement(calls) is None


def test_ranks_of_an_all_to_all_may_give_different_amounts():
    calls = {rank: Signature("all_to_all", 10 * rank, 30, "Float") for rank in range(4)}

    assert disagreement(calls) is None


def test_another_type_of_element_is_no_match():
    calls = {rank: Signature("all_reduce", 8, 8, "Float") for rank in range(5)}
    calls[0] = Signature("all_reduce", 8, 8, "BFloat16")

    assert disagreement(calls) == ((0,), True)


def test_half_against_half_is_undecided():
    calls = {rank: Signature("all_reduce", 8 + rank // 2) for rank in range(4)}

    assert disagreement(calls) == ((0, 1, 2, 3), False)


def test_a_size_of_thousands_of_digits_is_unknown():
    assert elements(f"[{'9' * 5000}]") is None
