"""What is compressed once for all, in whole or by metric, reads as it was."""

from __future__ import annotations

import gzip
import types

from hypothesis import given
from hypothesis import strategies as st

from peerwatch_common.web.compression import GzipCache
from peerwatch_common.web.pieces import Pieces


def test_body_is_compressed_once_for_all_scrapers():
    cache = GzipCache(size=2)
    first, second, third = (bytes([value]) * 5000 for value in b"abc")
    compressed = cache.compress(first)
    assert compressed is cache.compress(first)
    cache.compress(second)
    cache.compress(third)
    again = cache.compress(first)
    assert compressed is not again
    assert first == gzip.decompress(again)


PIECES = st.binary(max_size=30) | st.sampled_from(
    [b"# HELP a x\na 1\n", b"# HELP a x\na 2\n", b"# HELP b y\nb " + bytes(range(256)) * 300]
)


@given(st.lists(st.lists(PIECES, max_size=8), min_size=1, max_size=6))
def test_compressed_body_is_the_body_whatever_came_before(bodies):
    cache = GzipCache()
    for pieces in bodies:
        assert b"".join(pieces) == gzip.decompress(cache.compress(Pieces(pieces)))


def test_metric_that_did_not_change_is_not_compressed_again():
    first, second, third = (b"# HELP %c x\n%c 1\n" % (name, name) for name in b"abc")
    cache = GzipCache()
    cache.compress(Pieces([first, second, third]))
    given = []
    deflate = cache._deflate
    cache._deflate = types.SimpleNamespace(
        compress=lambda piece: (given.append(piece), deflate.compress(piece))[1],
        flush=deflate.flush,
    )
    changed = second.replace(b"1", b"2")
    body = Pieces([first, changed, third])
    assert bytes(body) == gzip.decompress(cache.compress(body))
    assert [changed] == given


def test_body_of_any_kind_leaves_nothing_behind():
    """The answers of some endpoints have megabytes, and are never the same."""
    cache = GzipCache(size=1)
    for number in range(5):
        body = b"%d" % number + bytes(5000)
        assert body == gzip.decompress(cache.compress(body))
    assert not cache._pieces


def test_metric_that_is_the_same_object_is_not_even_compared():
    cache, asked = GzipCache(), 0

    class Read(bytes):
        """Bytes that say when they are compared, which they are not if they are the same."""

        def __eq__(self, other):
            nonlocal asked
            asked += 1
            return bytes(self) == other

        def __ne__(self, other):
            return not self == other

        __hash__ = bytes.__hash__

    pieces = [Read(b"# HELP metric_%d x\nmetric_%d 1\n" % (n, n)) for n in range(200)]
    for last in range(4):
        body = Pieces([*pieces, b"# HELP last x\nlast %d\n" % last])
        assert bytes(body) == gzip.decompress(cache.compress(body))
        if last == 0:
            # What is new is compared with what is not there.
            asked = 0
    assert 0 == asked
