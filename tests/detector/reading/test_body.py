from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_detector.reading.transport.body import join_chunks

# What the state says at the end, and when the coding is broken.
DONE, BROKEN = 5, 6


def join(coded: bytes, cuts: list[int]) -> tuple[bytes, int]:
    """Bring coded bytes through in pieces; return what they carry and the state."""
    places = [0, *sorted(min(cut, len(coded)) for cut in cuts), len(coded)]
    state, found = np.array([0, -1]), b""
    for begin, end in pairwise(places):
        raw = np.frombuffer(coded[begin:end] + b"\0", np.uint8).copy()
        target = np.zeros(len(raw), np.uint8)
        count = join_chunks(raw, end - begin, target, state)
        assert count <= end - begin
        found += target[:count].tobytes()
    return found, int(state[0])


chunks = st.lists(st.binary(min_size=1, max_size=40), max_size=5)


@given(
    chunks,
    st.sampled_from([b"", b";name=value", b" ", b';quoted="x"']),
    st.sampled_from([b"", b"Checksum: 12\r\n", b"A: b\r\nC: d\r\n"]),
    st.lists(st.integers(0, 300), max_size=6),
)
def test_chunks_are_joined_however_they_are_cut(
    parts: list[bytes], extension: bytes, trailer: bytes, cuts: list[int]
) -> None:
    coded = b"".join(
        f"{len(one):X}".encode() + extension + b"\r\n" + one + b"\r\n" for one in parts
    )
    assert (b"".join(parts), DONE) == join(coded + b"0\r\n" + trailer + b"\r\n", cuts)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=4))
def test_garbage_never_crashes(coded: bytes, cuts: list[int]) -> None:
    assert len(join(coded, cuts)[0]) <= len(coded)


def test_what_is_no_length_is_broken() -> None:
    for coded in (b"zz\r\n", b"\r\n", b"-1\r\n", b"3\r\nabcd", b"1" * 20 + b"\r\n"):
        assert BROKEN == join(coded, [])[1]


def test_without_the_last_chunk_it_is_not_done() -> None:
    assert (b"abc", DONE) != join(b"3\r\nabc\r\n", [])
    assert DONE != join(b"3\r\nabc\r\n0\r\n", [])[1]
