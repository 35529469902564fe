"""Other settings while the detector runs: what stands stays, what is new holds at once."""

from __future__ import annotations

import logging

import pytest

from detector.fakes import config_for
from detector.world import EMPTY, ONSET, world
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.service.workers import attempt


def changed(**settings: object) -> DetectorConfig:
    """Return the settings of the world with some others."""
    return config_for(**settings)


@pytest.mark.parametrize("faulty_for", [400, 1500], ids=["in the history", "before the history"])
@pytest.mark.parametrize("settings", [{}, {"min_nodes": 4}, {"window_length": 9}], ids=str)
def test_a_finding_neither_resolves_nor_comes_again(
    faulty_for: int, settings: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    here = world()
    here.run(ONSET + faulty_for)
    before = here.findings()
    assert 1 == len(before)
    # What this process says of itself may not have been scraped yet.
    here.reader.published = []
    caplog.clear()
    caplog.set_level(logging.INFO, "peerwatch_detector")
    here.detector.follow(changed(**settings), EMPTY)
    assert before == here.findings()
    here.run(15)
    assert before == here.findings()
    here.run(300)
    assert before == here.findings()
    events = [record.getMessage().split()[0] for record in caplog.records]
    assert "finding_raised" not in events
    assert "finding_resolved" not in events


def test_a_finding_falls_when_the_fault_ends_after_the_change() -> None:
    here = world(end=ONSET + 500)
    here.run(ONSET + 400)
    here.detector.follow(changed(min_nodes=4), EMPTY)
    here.run(180)
    assert 1 == len(here.findings())
    here.run(90)
    assert [] == here.findings()


def test_a_deviation_goes_on_and_is_found_in_time() -> None:
    here, steady = world(), world()
    here.run(ONSET + 200)
    here.detector.follow(changed(), EMPTY)
    here.run(100)
    steady.run(ONSET + 300)
    assert 1 == len(steady.findings())
    assert steady.findings() == here.findings()


def test_new_settings_hold_from_the_next_turn_on() -> None:
    here = world()
    here.run(ONSET + 400)
    assert 1 == len(here.findings())
    job = here.detector.snapshot.detections[0]
    assert job.comparable
    here.detector.follow(changed(min_nodes=5), EMPTY)
    here.run(15)
    assert not here.detector.snapshot.detections[0].comparable


def test_what_is_read_with_the_settings_before_is_dropped() -> None:
    here = world()
    here.run(ONSET + 400)
    before = here.findings()
    reading = attempt(here.detector.reading("job-1"))
    here.detector.follow(changed(), EMPTY)
    assert here.detector.detect("job-1", reading)
    assert before == here.findings()
    here.run(30)
    assert before == here.findings()


def test_a_finding_restored_but_not_evaluated_yet_is_kept() -> None:
    here = world()
    here.run(ONSET + 400)
    before = here.findings()
    here.detector.follow(changed(min_nodes=4), EMPTY)
    here.detector.follow(changed(), EMPTY)
    here.reader.published = []
    here.run(15)
    assert before == here.findings()
