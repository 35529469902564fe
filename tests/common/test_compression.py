"""What is compressed in pieces reads as the whole, whatever stayed as it was."""

from __future__ import annotations

import gzip
import zlib

from hypothesis import given
from hypothesis import strategies as st

from peerwatch_common.web.compression import GzipCache
from peerwatch_common.web.pieces import Pieces


def piece(metric: int, value: int) -> bytes:
    return f"# HELP metric_{metric} Something.\nmetric_{metric} {value}\n".encode()


# A body: some of 60 metrics, each with a value, most of which stay from one body to the next.
BODIES = st.lists(
    st.tuples(
        st.sampled_from(("full", "fast")),
        st.sets(st.integers(0, 59), max_size=4),  # that changed
        st.sets(st.integers(0, 59), max_size=3),  # that are missing
    ),
    max_size=8,
)


@given(BODIES)
def test_bodies_one_after_another_are_what_they_were(
    bodies: list[tuple[str, set[int], set[int]]],
) -> None:
    cache = GzipCache()
    known: dict[tuple[str, int], bytes] = {}
    for number, (which, changed, missing) in enumerate(bodies):
        pieces = [f"# HELP up_{which} The first one.\n".encode()]
        for metric in range(60):
            if metric in changed or (which, metric) not in known:
                known[which, metric] = piece(metric, number * 1000 + metric)
            if metric not in missing:
                pieces.append(known[which, metric])
        body = Pieces(pieces)
        assert bytes(body) == gzip.decompress(cache.compress(body))


def test_what_did_not_change_is_neither_compressed_nor_compared_again() -> None:
    cache, asked = GzipCache(), 0
    pieces = [piece(metric, 1) for metric in range(200)]

    class Read(bytes):
        """Bytes that say when they are compared, which they are not if they are the same."""

        def __eq__(self, other: object) -> bool:
            nonlocal asked
            asked += 1
            return bytes(self) == other

        __hash__ = bytes.__hash__

    pieces = [Read(each) for each in pieces]
    for last in (1, 2, 3, 4):
        body = Pieces([*pieces, piece(200, last)])
        assert bytes(body) == gzip.decompress(cache.compress(body))
    assert 0 == asked


def test_the_same_body_is_compressed_once() -> None:
    cache = GzipCache()
    body = Pieces([piece(metric, 1) for metric in range(40)])
    plain = b"metric 1\n" * 400
    assert cache.compress(body) is cache.compress(body)
    assert plain == zlib.decompress(cache.compress(plain), 31)
