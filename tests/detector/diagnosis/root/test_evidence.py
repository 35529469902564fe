"""Evidence is read from JSON with every mistake named, and written back equal."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_detector.diagnosis.root.evidence.evidence import (
    KINDS,
    LOG_CLASSES,
    MOST_EVENTS,
    Evidence,
    read_events,
)
from peerwatch_detector.errors import CaseError

XID = {"time": 3.5, "kind": "xid", "name": "79", "node": "c4", "gpu": "3"}

_words = st.text("abc-_.019", max_size=20)
_ranks = st.none() | st.integers(0, 100_000)
evidence = st.builds(
    Evidence,
    time=st.floats(-1e6, 1e10),
    kind=st.sampled_from(KINDS),
    name=_words.filter(bool),
    node=_words,
    class_name=st.sampled_from(LOG_CLASSES),
    job_id=_words,
    rank=_ranks,
    gpu=_words,
    device=_words,
    peer_node=_words,
    peer_rank=_ranks,
    peer_address=_words,
    count=st.integers(1, 10_000),
    value=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    text=_words,
)


@given(st.lists(evidence, max_size=20))
def test_what_was_written_is_read_back_equal_in_order_of_time(events: list[Evidence]) -> None:
    text = json.dumps([each.to_json() for each in events])

    assert sorted(events, key=lambda each: each.time) == list(read_events(json.loads(text), "x"))


def test_defaults_are_not_written() -> None:
    assert XID == Evidence(time=3.5, kind="xid", name="79", node="c4", gpu="3").to_json()


def test_a_long_line_is_cut_and_cannot_break_the_terminal() -> None:
    line = "\x1b[31mNCCL WARN\n" + "x" * 10_000
    (event,) = read_events([XID | {"text": line}], "x")

    assert 500 == len(event.text)
    assert "\n" not in event.text
    assert "\x1b" not in event.text


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("Xid 79", "an event is an object"),
        ({"time": 1.0}, "lacks kind, name"),
        (XID | {"rang": 3}, "unknown fields ['rang']"),
        (XID | {"kind": "magic"}, "kind is 'magic'; there are xid, sxid"),
        (XID | {"time": math.nan}, "time is nan; it must be a finite number"),
        (XID | {"time": "soon"}, "time is 'soon'"),
        (XID | {"rank": -1}, "rank is -1; it must be a whole number from 0"),
        (XID | {"rank": True}, "rank is True"),
        (XID | {"rank": 1.5}, "rank is 1.5"),
        (XID | {"count": 0}, "count is 0; it must be a whole number from 1"),
        (XID | {"node": 4}, "node is 4; it must be a string"),
        (XID | {"name": ""}, "name is empty"),
        (XID | {"name": "x" * 129}, "name has 129 characters; 128 are allowed"),
        (XID | {"kind": "log"}, "class is ''; that of a line in a log is one of H, N, D"),
    ],
)
def test_a_mistake_is_named_with_its_place(event: object, expected: str) -> None:
    with pytest.raises(CaseError) as raised:
        read_events([XID, event], "case.json")

    assert "case.json: events[1]" in str(raised.value)
    assert expected in str(raised.value)


@pytest.mark.parametrize("events", [None, {"time": 1}, [XID] * (MOST_EVENTS + 1)])
def test_events_are_a_list_of_bounded_length(events: object) -> None:
    with pytest.raises(CaseError, match="events"):
        read_events(events, "case.json")
