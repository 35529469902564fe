"""What else was weighed is listed, with what speaks for it and why it is not named."""

from __future__ import annotations

import pytest

from detector.diagnosis.root.failed_job import ev, line, lost_connection, root_of, timeouts
from peerwatch_detector.diagnosis.root.answer import considered_text
from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence

STALLED = ev(0, "step", "stalled")
BUS = ev(-4, "xid", "79", "n3", gpu="3")


@pytest.mark.parametrize(
    ("evidence", "text"),
    [
        pytest.param(
            [BUS, *lost_connection("n3", 0), line(30, "missing_module", "U", 40)],
            "the training program: missing module; not named, because its first sign came 34 s "
            "after that of n3.",
            id="the program, later than hardware",
        ),
        pytest.param(
            [BUS, *lost_connection("n3", 0), ev(400, "job", "cancelled")],
            "the scheduler: cancelled; not named, because its first sign came 7 min after that of "
            "n3.",
            id="the scheduler, later than hardware",
        ),
        pytest.param(
            [BUS, ev(-2.5, "finding", "pfc_tx_rate", "n6"), *lost_connection("n3", 0)],
            "n6: PFC pause frames sent; not named, because it says who differs, and not why; what "
            "n3 shows says why.",
            id="a node that statistics find, beside one that says why",
        ),
        pytest.param(
            [STALLED, ev(-300, "xid", "79", "n5", gpu="0"), ev(-200, "boot", "boot", "n5"), BUS],
            "n5: XID 79; not named, because it had passed before the job suffered.",
            id="an error before a node was started again",
        ),
        pytest.param(
            [STALLED, *lost_connection("n1", 60), line(90, "storage_full", "S", 8)],
            "the storage: storage full; not named, because its first sign came 30 s after that of "
            "n1.",
            id="storage, later than closed connections",
        ),
    ],
)
def test_it_is_said_why_an_answer_is_not_given(evidence: list[Evidence], text: str) -> None:
    found = root_of(*evidence)

    assert text in [considered_text(each) for each in found.considered]


def test_what_follows_from_the_cause_is_not_listed() -> None:
    killed = [ev(9, "process", "killed", f"n{i}", rank=8 * i, value=-9.0) for i in range(8)]

    assert () == root_of(BUS, *lost_connection("n3", 0), *killed).considered
    assert () == root_of(STALLED, *timeouts(600)).considered


def test_nodes_with_the_same_signs_are_one_line() -> None:
    alike = [ev(-3, "finding", "pfc_tx_rate", node) for node in ("n5", "n6")]
    (considered,) = root_of(BUS, *alike, *lost_connection("n3", 0)).considered

    assert "n5, n6" == considered.what
    assert 2 == len(considered.speaks_for)
