from __future__ import annotations

from detector.diagnosis.fake_diagnosers import FakeInstants
from detector.fakes import START, FakeClock
from peerwatch_detector.diagnosis.config.watch import read_state


def test_a_server_that_leaves_labels_out_costs_what_they_would_have_said() -> None:
    state = read_state(FakeInstants(FakeClock()), "job-1", None, START)
    assert ((), START) == (state.changes, state.time)
