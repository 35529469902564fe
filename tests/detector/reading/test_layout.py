"""Rows by labels: the same as found anew, however often and in whatever order series come."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.reading.decoding import padded
from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading.decode.grid_writer import GridWriter, new_grid_writer, open_row
from peerwatch_detector.reading.decode.layout import LabelTexts, layout_of
from peerwatch_detector.reading.selection import Grid

Labels = tuple[str, str, str]

labels = st.tuples(
    st.sampled_from(["", "a", "b", 'o"dd', "ö\\x"]),
    st.sampled_from(["", "0", "10"]),
    st.sampled_from(["", "r1", "r2"]),
)


def arrival_of(series: list[Labels]) -> GridWriter:
    """Return rows of one step whose values are their numbers."""
    writer = new_grid_writer(Grid(0, 0), 0, counter=False, labels=("node", "gpu"), rows=len(series))
    for node, gpu, rest in series:
        text = "/".join((rest, node, gpu)).encode()
        place = len(rest.encode()) + 1
        end = place + len(node.encode())
        spans = [0, len(text), place, end, end + 1, len(text)]
        spans[2:4] = spans[2:4] if node else [-1, -1]
        spans[4:6] = spans[4:6] if gpu else [-1, -1]
        open_row(writer, padded(text), np.array(spans, np.int64))
    writer.values[:, 0] = np.arange(len(series))
    return writer


@given(rounds=st.lists(st.lists(labels, unique=True, min_size=1, max_size=12), max_size=4))
def test_a_known_layout_is_taken_only_for_the_same_labels(rounds: list[list[Labels]]) -> None:
    known = None
    for series in rounds:
        for _ in range(2):
            known = layout_of(arrival_of(series), escaped=False, known=known)
            writer = arrival_of(series)
            found = dict(zip(known.keys, known.fold(writer.values)[:, 0], strict=True))
            expected: dict[tuple[str, str], list[tuple[str, int]]] = {}
            for row, (node, gpu, rest) in enumerate(series):
                if node:
                    expected.setdefault((node, gpu), []).append((f"{rest}/{node}/{gpu}", row))
            assert {key: min(rows)[1] for key, rows in expected.items()} == found
            assert known.unnamed == sum(not node for node, _, _ in series)
            assert known.rows == len(series) - known.unnamed


def test_the_layout_of_the_last_answer_is_used_again() -> None:
    first = layout_of(arrival_of([("a", "", ""), ("b", "", "")]), escaped=False)
    again = layout_of(arrival_of([("a", "", ""), ("b", "", "")]), escaped=False, known=first)
    other = layout_of(arrival_of([("b", "", ""), ("a", "", "")]), escaped=False, known=first)
    assert first is again
    assert (("b", ""), ("a", "")) == other.keys


@pytest.mark.parametrize("escaped", [True, False])
def test_a_label_that_is_not_utf_8_costs_nothing_else(escaped: bool) -> None:
    assert ["a", "b\ufffd", "é"] == [
        LabelTexts(escaped).text(raw) for raw in (b"a", b"b\xff", "é".encode())
    ]


def test_an_escape_that_json_does_not_know_is_no_text() -> None:
    with pytest.raises(ReadError, match="is no text"):
        LabelTexts(escaped=True).text(rb"\x41")
