"""Lines that a container runtime wrote in parts are one line again."""

from __future__ import annotations

import json

import pytest

from peerwatch_common.signatures.matcher import LONGEST_LINE, LogMatcher
from peerwatch_common.signatures.partial_lines import PartialLines
from signature_tables import shipped_table

TABLE = shipped_table("job")
TEXT = "CUDA error: device-side assert triggered"


def record(text: str, tag: str = "F", stream: str = "stderr", second: int = 0) -> str:
    return f"2026-11-23T10:00:{second:02}.5Z {stream} {tag} {text}\n"


LOG = (
    record("[rank3]: CUDA err", "P", second=1)
    + record("step 1", stream="stdout")
    + record("or: device-side ", "P", second=2)
    + record("step 2: 12", "P", stream="stdout")
    + record("assert triggered", second=3)
    + record("34 s", stream="stdout")
)


def events_of(log: str, size: int = 1 << 20) -> list:
    matcher = LogMatcher(TABLE)
    data = log.encode()
    blocks = [data[start : start + size] for start in range(0, len(data), size)]
    return [event for block in blocks for event in matcher.feed(block)] + matcher.finish()


@pytest.mark.parametrize("size", [1, 50, 64, 100, 1 << 20])
def test_parts_are_joined_wherever_the_log_is_cut(size: int) -> None:
    (event,) = events_of(LOG, size)

    assert (event.signature.id, event.rank) == ("cuda_device_assert", 3)
    assert TEXT.encode() == event.text
    # 2026-11-23 10:00:01.5 UTC, when the first part was written.
    assert event.timestamp == 1795428001.5


def test_a_last_part_that_nothing_follows_counts_at_the_end() -> None:
    assert ["cuda_device_assert"] == [
        event.signature.id for event in events_of(record("CUDA error: device-si", "P") + record(
            "de assert triggered", "P"
        ))
    ]  # fmt: skip


def test_a_line_without_an_end_is_given_up_in_pieces() -> None:
    parts = PartialLines(LONGEST_LINE)
    for _ in range(200):
        parts.joined(record("x" * 8000, "P").rstrip("\n").encode())

    assert len(parts.finish()) < 2 * LONGEST_LINE
    assert ["cuda_device_assert"] == [
        event.signature.id
        for event in events_of(record("x" * 16384, "P") * 9 + record(f"{TEXT} here"))
    ]


def test_what_a_progress_bar_wrote_over_does_not_grow() -> None:
    log = "".join(record(f"\r{number} %", "P") for number in range(5000))
    assert ["cuda_device_assert"] == [
        event.signature.id for event in events_of(log + record(f"\r{TEXT}"))
    ]


@pytest.mark.parametrize("text", ["", "no record", "2026-11-23T10:00:01.5Z stderr X y", " P "])
def test_other_lines_stay_as_they_are(text: str) -> None:
    assert text.encode() == PartialLines(100).joined(text.encode())


def test_a_record_of_docker_hides_no_angle_brackets() -> None:
    text = "n1:1:2 [0] NCCL WARN Connection closed by remote peer gpu-7<51159>"
    written = json.dumps({"log": f"{text}\n", "stream": "stdout"})
    written = written.replace("<", "\\u003c").replace(">", "\\u003e")
    (event,) = events_of(written + "\n")

    assert ("nccl_connection_closed", "gpu-7") == (event.signature.id, event.peer_address)
