"""Times are read as programs write them: with and without zone, year and fraction."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from peerwatch_common.signatures.timestamps import timestamp_of

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC).timestamp()


def local(*numbers: int) -> float:
    # Times without a zone are the node's own, whatever that is where the test runs.
    return datetime(*numbers).timestamp()  # noqa: DTZ001


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"2026-01-02T10:00:00Z x", datetime(2026, 1, 2, 10, tzinfo=UTC).timestamp()),
        (b"2026-01-02T10:00:00.25+02:00 x", datetime(2026, 1, 2, 8, tzinfo=UTC).timestamp() + 0.25),
        (b"[2026-01-02 10:00:00,500] [INFO]", local(2026, 1, 2, 10) + 0.5),
        (b"01/02/2026 10:00:00 - INFO", local(2026, 1, 2, 10)),
        (b"Jan  2 10:00:00 node kernel: x", local(2026, 1, 2, 10)),
        # In January a line of December is of last year.
        (b"Dec 31 23:59:59 node kernel: x", local(2025, 12, 31, 23, 59, 59)),
        (b"[Fri Jan  2 10:00:00 2026] x", local(2026, 1, 2, 10)),
        (b"[rank0]:[E102 10:00:00.5 x.cpp:1] y", local(2026, 1, 2, 10) + 0.5),
        (b"[rank0]:[E1231 10:00:00.5 x.cpp:1] y", local(2025, 12, 31, 10) + 0.5),
        (b"2026-13-45T99:00:00Z x", None),
        (b"Foo  2 10:00:00 x", None),
        (b"no time: here", None),
        (b"x" * 500 + b"2026-01-02T10:00:00Z", None),
    ],
)
def test_a_time_is_read(text: bytes, expected: float | None) -> None:
    found = timestamp_of(text, NOW)
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-3))
