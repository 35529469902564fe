from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peerwatch_detector.reading.decode.decimals import read_decimal, read_milliseconds


def read(text: str) -> tuple[float, int]:
    return read_decimal(np.frombuffer(text.encode() + bytes(48), np.uint8), 0)


def same(value: float, other: float) -> bool:
    return np.float64(value).tobytes() == np.float64(other).tobytes()


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(5e-324)
@example(2.2250738585072014e-308)
@example(1.7976931348623157e308)
@example(9007199254740993.0)
@example(-0.0)
def test_every_number_is_read_back_as_it_was(value: float) -> None:
    for text in (repr(value), np.format_float_positional(value, trim="-")):
        found, end = read(text)
        assert len(text) == end
        assert same(value, found), text


@given(
    st.integers(0, 10**19 - 1),
    st.integers(0, 40),
    st.none() | st.integers(-330, 320),
)
@example(45787743010767415, 2, 1)
@example(9007199254740993, 0, None)
@example(544498983869904125, 1, None)
def test_up_to_19_digits_are_rounded_as_python_does(
    digits: int, decimals: int, exponent: int | None
) -> None:
    text = str(digits)
    if decimals:
        text = text.zfill(decimals + 1)
        text = f"{text[:-decimals]}.{text[-decimals:]}"
    if exponent is not None:
        text += f"e{exponent:+d}"
    found, end = read(text)
    assert (len(text), float(text)) == (end, found)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("+Inf", math.inf),
        ("Inf", math.inf),
        ("-Inf", -math.inf),
        ("1e400", math.inf),
        ("1e-400", 0.0),
        ("1E5", 1e5),
        ("0.000", 0.0),
        ("00012.5", 12.5),
        ("1" + "0" * 300, 1e300),
    ],
)
def test_words_and_extremes(text: str, value: float) -> None:
    assert (value, len(text)) == read(text)


def test_nan_is_read() -> None:
    found, end = read("NaN")
    assert math.isnan(found)
    assert 3 == end


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", 0),
        ("x", 0),
        ("-", 1),
        (".", 1),
        ("1e", 2),
        ("1e+", 3),
        ("In", 2),
        ("Naan", 2),
        ('"', 0),
        ("+x", 1),
    ],
)
def test_what_is_no_number_names_the_byte_that_does_not_fit(text: str, place: int) -> None:
    assert -1 - place == read(text)[1]


@given(st.integers(0, 4 * 10**12))
def test_milliseconds_are_exact(value: int) -> None:
    for text in (
        f"{value // 1000}.{value % 1000:03d}",
        f"{value // 1000}.{value % 1000:03d}".rstrip("0").rstrip("."),
    ):
        raw = np.frombuffer(text.encode() + b"," + bytes(48), np.uint8)
        assert (value, len(text)) == read_milliseconds(raw, 0)


def test_a_time_before_1970_and_one_that_is_none() -> None:
    raw = np.frombuffer(b"-1.5,x" + bytes(48), np.uint8)
    assert (-1500, 4) == read_milliseconds(raw, 0)
    assert -6 == read_milliseconds(raw, 5)[1]
