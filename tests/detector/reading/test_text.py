"""The decoders of both text formats, against json."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.reading.decoding import Decoder, block, empty, take
from detector.reading.naive_grid import naive_steps
from peerwatch_detector.reading.decode.export_lines import decode_lines
from peerwatch_detector.reading.decode.grid_writer import ROWS
from peerwatch_detector.reading.decode.matrix import decode_matrix
from peerwatch_detector.reading.decode.status import BAD_TEXT, FINISHED, HISTOGRAM, MORE_BYTES
from peerwatch_detector.reading.selection import Grid

GRID = Grid(1_700_000_000_000, 1_700_000_030_000)
TIMES = st.integers(GRID.start - 9000, GRID.end + 9000)
VALUES = st.floats() | st.integers(-(10**18), 10**18).map(float) | st.sampled_from([0.25, 1e-7])
NODES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)

Samples = list[tuple[int, float]]


@st.composite
def many(draw: st.DrawFn) -> dict[str, Samples]:
    found = {}
    for node in draw(st.lists(NODES, max_size=4, unique=True)):
        times = sorted(draw(st.lists(TIMES, unique=True, max_size=20)))
        found[node] = [(when, draw(VALUES)) for when in times]
    return found


def text_of(value: float) -> str:
    """Return a number as Go writes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return np.format_float_positional(value, trim="-")


def matrix(data: dict[str, Samples], separators: tuple[str, str] = (",", ":")) -> bytes:
    result = [
        {
            "metric": {"__name__": "level", "node": node, "job": 'a"b'},
            "values": [[when / 1000, text_of(value)] for when, value in samples],
        }
        for node, samples in data.items()
    ]
    return json.dumps(result, separators=separators).encode()[1:] + b',"warnings":[]}'


def lines(data: dict[str, Samples]) -> bytes:
    def plain(value: float) -> Any:
        return None if math.isnan(value) else "Infinity" if math.isinf(value) else value

    return b"".join(
        json.dumps(
            {
                "metric": {"__name__": "level", "node": node},
                "values": [plain(value) for _, value in samples],
                "timestamps": [when for when, _ in samples],
            }
        ).encode()
        + b"\n"
        for node, samples in data.items()
    )


def check(data: dict[str, Samples], found: dict[str, list[float]]) -> None:
    for node, samples in data.items():
        np.testing.assert_array_equal(
            np.float32(naive_steps(samples, GRID, 5000)), np.float32(found[node])
        )
    assert set(data) == set(found)


def rows(writer) -> dict[str, list[float]]:
    found = block(writer, GRID)
    return {node: row.tolist() for (node, _), row in zip(found.keys, found.values, strict=True)}


@given(many(), st.lists(st.integers(0, 3000), max_size=4), st.sampled_from([",:", " :"]))
def test_a_matrix_lands_on_the_grid_however_it_is_cut(
    data: dict[str, Samples], cuts: list[int], style: str
) -> None:
    text = matrix(data, (",", ":") if style == ",:" else (" ,\n ", " : "))
    places = tuple(min(cut, len(text)) for cut in cuts)
    writer, status, end = take(decode_matrix, empty(GRID), text, places)
    assert (FINISHED, b',"warnings":[]}') == (status, text[end:])
    check(data, rows(writer))


@given(many(), st.lists(st.integers(0, 3000), max_size=4))
def test_lines_land_on_the_grid_however_they_are_cut(
    data: dict[str, Samples], cuts: list[int]
) -> None:
    text = lines(data)
    places = tuple(min(cut, len(text)) for cut in cuts)
    writer, status, end = take(decode_lines, empty(GRID), text, places)
    assert (MORE_BYTES, len(text)) == (status, end)
    check(data, rows(writer))


LABELS = st.fixed_dictionaries(
    {"__name__": st.just("level"), "node": st.sampled_from(["ab", "cd", '"', "\\", "\n", "abc"])},
    optional={
        "gpu": st.sampled_from(["1", "2", "10"]),
        "nods": st.sampled_from(["ab", "cd"]),
        "job": st.sampled_from(["x", "y"]),
    },
)


@given(st.lists(LABELS, min_size=2, max_size=8), st.booleans())
def test_labels_that_are_nearly_those_of_the_series_before_are_read(
    every: list[dict[str, str]], turned: bool
) -> None:
    """Some differ in the node and the GPU alone, some look so."""
    if turned:
        every = [dict(reversed(labels.items())) for labels in every]
    result = [{"metric": labels, "values": [[1_700_000_000, "1"]]} for labels in every]
    text = json.dumps(result, separators=(",", ":")).encode()[1:]
    writer, status, _ = take(decode_matrix, empty(GRID), text)
    assert FINISHED == status
    # A series that comes in two parts is one.
    spelt = [json.dumps(labels) for labels in every]
    apart = [
        each
        for each, before in zip(every, ["", *spelt], strict=False)
        if json.dumps(each) != before
    ]
    assert len(apart) == writer.counts[ROWS]
    for labels, span in zip(apart, writer.spans[: len(apart)].tolist(), strict=True):
        parts = [
            bytes(writer.labels[b:e]) if b >= 0 else None
            for b, e in zip(span[::2], span[1::2], strict=True)
        ]
        assert labels == json.loads(parts[0])
        for name, part in zip(("node", "gpu"), parts[1:], strict=True):
            assert labels.get(name) == (None if part is None else json.loads(b'"' + part + b'"'))


def test_other_fields_of_a_series_are_passed_over() -> None:
    series = {
        "x": {"y": [1, "}]", None]},
        "metric": {"gpu": "3", "node": "a"},
        "z": '\\"',
        "values": [[1_700_000_000, "1"]],
        "after": [[]],
    }
    writer, status, _ = take(decode_matrix, empty(GRID), json.dumps([series]).encode()[1:])
    assert FINISHED == status
    assert (("a", "3"),) == block(writer, GRID).keys


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b'{"metric":{},"histograms":[[1,{"count":"1"}]]}]', HISTOGRAM),
        (b'{"values":[[1,"2"]],"metric":{}}]', BAD_TEXT),
        (b'{"values":[[1,"2"]]}]', BAD_TEXT),
        (b'{"metric":{},"values":[[1,2]]}]', BAD_TEXT),
        (b'{"metric":{},"values":[[1,"x"]]}]', BAD_TEXT),
        (b'{"metric":{},"values":[[1,"2"],]}]', BAD_TEXT),
        (b'{"metric":{},"values":[[1,"2"][1,"2"]]}]', BAD_TEXT),
        (b'{"metric":{},"values":[["1","2"]]}]', BAD_TEXT),
        (b'{"metric":{},"values":[[1e9,"2"]]}]', BAD_TEXT),
        (b'{"metric":{"a":1},"values":[]}]', BAD_TEXT),
        (b'{"metric":{"a":"1",},"values":[]}]', BAD_TEXT),
        (b'{"metric":"a","values":[]}]', BAD_TEXT),
        (b'{"metric":{},"values":7}]', BAD_TEXT),
        (b"<html>", BAD_TEXT),
        (b'{"metric":{},"values":[[1,"2"', MORE_BYTES),
        (b'{"metric":{"node":"a', MORE_BYTES),
        (b"", MORE_BYTES),
    ],
)
def test_what_is_no_matrix_is_told(text: bytes, status: int) -> None:
    assert status == take(decode_matrix, empty(GRID), text)[1]


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b'{"metric":{},"values":[1,2],"timestamps":[1]}\n', BAD_TEXT),
        (b'{"metric":{},"values":[1],"timestamps":[1,2]}\n', BAD_TEXT),
        (b'{"metric":{},"values":[1],"timestamps":["1"]}\n', BAD_TEXT),
        (b'{"metric":{},"values":[x],"timestamps":[1]}\n', BAD_TEXT),
        (b'{"metric":{},"values":[1]}\n', BAD_TEXT),
        (b'{"values":[1],"timestamps":[1]}\n', BAD_TEXT),
        (b"cannot export data\n", BAD_TEXT),
        (b'{"metric":{},"values":[1],"timest', MORE_BYTES),
        (b"\n\n", MORE_BYTES),
    ],
)
def test_what_is_no_line_is_told(text: bytes, status: int) -> None:
    assert status == take(decode_lines, empty(GRID), text)[1]


@pytest.mark.parametrize("decoder", [decode_matrix, decode_lines], ids=["matrix", "lines"])
@given(data=many(), damage=st.data())
def test_damaged_text_never_crashes(
    decoder: Decoder, data: dict[str, Samples], damage: st.DataObject
) -> None:
    text = bytearray(matrix(data) if decoder is decode_matrix else lines(data))
    for _ in range(damage.draw(st.integers(0, 5)) if text else 0):
        text[damage.draw(st.integers(0, len(text) - 1))] = damage.draw(st.integers(0, 255))
    cut = damage.draw(st.integers(0, len(text)))
    writer, status, end = take(decoder, empty(GRID), bytes(text[:cut]))
    assert status in {FINISHED, MORE_BYTES, BAD_TEXT, HISTOGRAM}
    assert 0 <= end <= cut
    assert writer.counts[ROWS] <= cut


@given(st.binary(max_size=200))
def test_garbage_never_crashes(data: bytes) -> None:
    for decoder in (decode_matrix, decode_lines):
        assert take(decoder, empty(GRID), data)[1] in {FINISHED, MORE_BYTES, BAD_TEXT, HISTOGRAM}
