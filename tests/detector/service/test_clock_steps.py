"""The clock of the detector's machine is set while it runs; Prometheus' own goes on as before."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from detector.fakes import START, FakeClock, config_for
from detector.world import ONSET, World, world
from peerwatch_detector.models.store import EMPTY
from peerwatch_detector.service.detector import Detector

HOUR = 3600.0


@dataclass
class SetClock:
    """The clock of the detector's machine: so many seconds ahead of the server's."""

    server: FakeClock
    ahead: float = 0.0

    def __call__(self) -> float:
        return self.server() + self.ahead


def apart(**job: int) -> tuple[World, SetClock]:
    """Return a world whose detector has a clock of its own."""
    here = world(config_for(), **job)
    clock = SetClock(here.clock)
    here.detector = Detector(here.config, here.reader, EMPTY, clock, here.clock)
    return here, clock


@pytest.mark.parametrize("wrong_for", [15, 600])
@pytest.mark.parametrize("ahead", [600.0, HOUR])
def test_a_clock_that_was_ahead_for_a_while_hides_no_fault(ahead: float, wrong_for: int) -> None:
    here, clock = apart()
    here.run(ONSET - 60 - wrong_for)
    clock.ahead = ahead
    here.run(wrong_for)
    clock.ahead = 0.0
    here.run(60 + 270)
    (finding,) = here.findings()
    assert "node-01" == finding[1]
    assert abs(finding[6] - (START + ONSET)) <= 8


@pytest.mark.parametrize("back", [60.0, HOUR])
def test_findings_stand_while_a_clock_is_set_back(back: float) -> None:
    here, clock = apart()
    here.run(ONSET + 300)
    clock.ahead = back
    here.run(30)
    before = here.findings()
    assert ["node-01"] == [finding[1] for finding in before]
    clock.ahead = 0.0
    for _ in range(10):
        here.run(15)
        assert ["node-01"] == [finding[1] for finding in here.findings()]
    assert {"load": 1.0} == here.detector.snapshot.detections[0].coverage


def test_a_node_that_vanished_stays_named_when_the_clock_is_set_back() -> None:
    here, clock = apart(faulty=None)
    clock.ahead = HOUR
    here.run(ONSET)
    here.reader.remove_node("job-1", "node-02", here.clock())
    here.run(300)
    assert ["absent"] == [finding[3] for finding in here.findings()]
    clock.ahead = 0.0
    for _ in range(10):
        here.run(15)
        assert [("node-02", "absent")] == [(finding[1], finding[3]) for finding in here.findings()]
        assert here.detector.snapshot.detections[0].job.running


def test_a_clock_set_forward_makes_no_missed_scrape_a_vanished_node() -> None:
    here, clock = apart(faulty=None)
    here.run(ONSET)
    gone = here.reader.present["node-02"][0]
    gone.end = here.clock()
    here.run(15)
    clock.ahead = HOUR
    here.run(15)
    assert [] == here.findings()
    gone.end = float("inf")
    here.run(60)
    assert [] == here.findings()


def test_a_detector_that_was_stopped_for_a_while_names_nobody_for_it() -> None:
    """A machine that was suspended, or a process that had no turn."""
    here, _ = apart(faulty=None)
    here.run(ONSET)
    gone = here.reader.present["node-02"][0]
    gone.end = here.clock()
    here.run(15)
    here.clock.advance(HOUR / 4)
    here.run(15)
    assert [] == here.findings()
    gone.end = float("inf")
    here.run(60)
    assert [] == here.findings()


def test_a_job_that_ended_is_given_up_though_the_clock_is_set_back() -> None:
    here, clock = apart(faulty=None)
    clock.ahead = HOUR
    here.run(ONSET)
    for node in ("node-00", "node-01", "node-02", "node-03"):
        here.reader.leave("job-1", node, here.clock())
    here.run(15)
    clock.ahead = 0.0
    here.run(180)
    assert () == here.detector.snapshot.detections


@pytest.mark.parametrize("back", [400.0, 600.0, HOUR])
def test_a_clock_set_back_and_right_again_clears_no_finding(
    back: float, caplog: pytest.LogCaptureFixture
) -> None:
    here, clock = apart()
    here.run(ONSET + 300)
    before = here.findings()
    assert ["node-01"] == [finding[1] for finding in before]
    for ahead in (-back, 0.0):
        clock.ahead = ahead
        for _ in range(14):
            here.run(15)
            assert before == here.findings()
    jumps = [line.getMessage() for line in caplog.records if "clock_jumped" in line.message]
    assert [
        f"clock_jumped direction=back seconds={back:.0f}",
        f"clock_jumped direction=forward seconds={back:.0f}",
    ] == jumps
    assert {"forward": 1, "back": 1} == here.detector.snapshot.clock_jumps


def test_a_finding_clears_once_its_node_is_well_though_the_clock_was_set_back() -> None:
    here, clock = apart(end=ONSET + 420)
    here.run(ONSET + 300)
    clock.ahead = HOUR
    here.run(30)
    assert ["node-01"] == [finding[1] for finding in here.findings()]
    clock.ahead = 0.0
    here.run(480)
    assert [] == here.findings()
