"""What changed: values that came and went, paired by node and key."""

from __future__ import annotations

from peerwatch_detector.diagnosis.config.changes import (
    MOST_CHANGES,
    Change,
    Value,
    changes,
    newest,
)
from peerwatch_detector.diagnosis.config.evidence import evidence_of
from peerwatch_detector.diagnosis.config.watch import ConfigState, Minority


def test_a_value_that_another_one_took_the_place_of_is_a_change():
    found = changes([Value("n1", "cpu.smt", "off")], [Value("n1", "cpu.smt", "on")], 5.0)

    assert (Change(5.0, "n1", "cpu.smt", "on", "off"),) == found


def test_a_value_that_came_or_went_alone_is_none():
    assert () == changes([Value("n1", "cpu.smt", "off")], [Value("n2", "cpu.smt", "on")], 5.0)
    assert () == changes([Value("n1", "cpu.smt", "off")], [Value("n1", "cpu.online", "0")], 5.0)


def test_devices_that_agreed_and_do_not_any_more_changed_where_their_values_did():
    now = [Value("n1", f"gpu.{gpu}.ecc", "off" if gpu == 2 else "on") for gpu in range(4)]

    assert (Change(1.0, "n1", "gpu.2.ecc", "on", "off"),) == changes(
        now, [Value("n1", "gpu.ecc", "on")], 1.0
    )
    assert (Change(1.0, "n1", "gpu.ecc", "off", "on"),) == changes(
        [Value("n1", "gpu.ecc", "on")], now, 1.0
    )


def test_a_change_seen_again_keeps_its_time_and_the_newest_of_a_key_stands():
    first, again = Change(1.0, "n", "k", "a", "b"), Change(9.0, "n", "k", "a", "b")
    back = Change(20.0, "n", "k", "b", "a")

    assert (first,) == newest([first], [again])
    assert (back,) == newest([first], [again, back])


def test_changes_are_bounded_and_the_newest_stay():
    many = [Change(float(n), f"n{n}", "k", "a", "b") for n in range(500)]
    kept = newest((), many)

    assert MOST_CHANGES == len(kept)
    assert 499.0 == kept[-1].time


def test_evidence_is_each_difference_and_each_change_in_order_of_time():
    state = ConfigState(
        9.0,
        (Minority("n1", "gpu.vbios", "x", "y", 1, 8), Minority("n2", "cpu.smt", "a", "b", 1, 8)),
        (),
        (Change(7.0, "n1", "cpu.smt", "on", "off"),),
    )
    drift, first, second = evidence_of(state, "llm")

    assert (7.0, "drift", "n1", "cpu.smt") == (drift.time, drift.class_name, drift.node, drift.name)
    assert ("minority", "n1", "gpu.vbios") == (first.class_name, first.node, first.name)
    assert "'x' on 1 of 8 nodes, 'y' on most" == first.text
    assert {("n2", "llm", "config")} == {(second.node, second.job_id, second.kind)}
