"""The earliest error that follows from none is the candidate for the root."""

from __future__ import annotations

from peerwatch_common.signatures.first_error import FirstError
from peerwatch_common.signatures.matcher import LogMatcher
from signature_tables import shipped_table

TABLE = shipped_table("job")
ECC = b"2026-11-23T10:00:05Z stderr F CUDA error: uncorrectable ECC error encountered\n"
CLOSED = b"2026-11-23T10:00:09Z stderr F Net : Connection closed by remote peer 10.0.0.7<50260>\n"
SIGTERM = b"2026-11-23T10:00:01Z stderr F Sending process 27143 closing signal SIGTERM\n"
HINT = b"2026-11-23T10:00:00Z stderr F CUDA kernel errors might be asynchronously reported\n"


def first_of(log: bytes) -> FirstError:
    first = FirstError()
    for number, event in enumerate(LogMatcher(TABLE).feed(log)):
        first.add(event, 1.8e9 + number)
    return first


def test_the_earliest_error_that_is_no_cascade_is_the_candidate() -> None:
    first = first_of(HINT + SIGTERM + CLOSED + ECC + CLOSED)
    assert first.candidate is not None
    assert first.candidate.signature.id == "cuda_ecc"
    assert first.time == 1795428005.0
    assert first.cascades == {"elastic_failure": 1}
    assert first.repeated == {"nccl_connection_closed": 2}


def test_lines_without_a_time_count_in_the_order_of_reading() -> None:
    bare = [line.split(b" F ")[1] for line in (CLOSED, ECC)]
    first = first_of(b"".join(bare))
    assert first.candidate is not None
    assert first.candidate.signature.id == "nccl_connection_closed"


def test_cascades_alone_have_no_candidate() -> None:
    first = first_of(SIGTERM * 3)
    assert first.candidate is None
    assert first.cascades == {"elastic_failure": 3}
