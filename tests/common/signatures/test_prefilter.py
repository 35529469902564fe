"""Which lines are looked at: all that may match, whatever was read before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_common.signatures.prefilter import Prefilter, TextTable, reduced

TEXTS = (
    frozenset({(b"CUDA error", b"device"), (b"NCCL WARN",)}),
    frozenset({(b"Traceback",)}),
    frozenset({(b"timed out",), (b"connection", b"refused")}),
)
WORDS = [*(text for each in TEXTS for several in each for text in several), b"12", b"step", b"\0"]
LINE = st.lists(st.sampled_from(WORDS), max_size=4).map(b" ".join)


def may_match(line: bytes) -> set[int]:
    return {
        number
        for number, each in enumerate(TEXTS)
        if any(all(reduced(text) in reduced(line) for text in texts) for texts in each)
    }


@given(st.lists(st.lists(LINE, min_size=1, max_size=8), max_size=6))
def test_lines_are_selected_by_what_they_say_alone(blocks: list[list[bytes]]) -> None:
    prefilter = Prefilter(TEXTS, b"step 1\nstep 2\n")
    for block in blocks:
        expected = {
            number: found for number, line in enumerate(block) if (found := may_match(line))
        }

        assert expected == prefilter.lines(b"\n".join(block))


def test_a_log_of_ever_new_lines_is_remembered_within_bounds() -> None:
    prefilter = Prefilter(TEXTS, b"step")
    letters = b"bcdfghjklmnpqrst"
    for number in range(40_000):
        word = bytes(letters[number >> shift & 15] for shift in (0, 4, 8, 12))
        assert prefilter.lines(b"step " + word) == {}

    assert len(prefilter._passed) < 10_000
    assert {0: {1}} == prefilter.lines(b"Traceback (most recent call last):")


def test_long_lines_are_not_remembered() -> None:
    prefilter = Prefilter(TEXTS, b"step")
    prefilter.lines(b"x" * 1_000_000)

    assert set() == prefilter._passed


@pytest.mark.parametrize(
    ("line", "within"),
    [
        (b"CUDA error on the device", {0}),
        (b"CUDA error", set()),
        (b"connection refused, NCCL WARN", {0, 2}),
        (b"", set()),
    ],
)
def test_a_line_has_all_texts_of_one_choice(line: bytes, within: set[int]) -> None:
    assert within == TextTable(TEXTS).within(line, range(len(TEXTS)))
