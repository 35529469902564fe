"""What is read rarely: when it is due, of whom, and again after a failure."""

from __future__ import annotations

import pytest

from hardware_cases import FakeClock
from peerwatch_exporter.sources.host.rarely import Rarely


@pytest.fixture
def clock():
    return FakeClock(1000.0)


def seconds_of_reading(rarely, clock, seconds, early=0.0):
    """Return in which of these seconds something is read, at ticks that are early or late."""
    start = clock.now
    read = []
    for second in range(seconds):
        clock.now = start + second + early * (-1) ** second
        rarely(lambda second=second: read.append(second))
    return read


@pytest.mark.parametrize("early", [0.0, 0.2, -0.2])
def test_it_is_read_at_every_fifth_tick(clock, early):
    assert seconds_of_reading(Rarely(5, clock), clock, 16, early) == [0, 5, 10, 15]


def test_the_second_time_comes_in_its_turn(clock):
    assert seconds_of_reading(Rarely(5, clock, turn=2), clock, 16) == [0, 3, 8, 13]


def test_what_was_read_is_the_same_object_meanwhile(clock):
    rarely = Rarely(5, clock)
    first = rarely(object)
    clock.now += 4
    assert rarely(object) is first
    clock.now += 1
    assert rarely(object) is not first


def test_of_other_things_it_is_read_at_once(clock):
    rarely = Rarely(5, clock)
    assert [rarely(lambda of=of: of, of) for of in ("a", "a", "b", "b", "a")] == list("aabba")
    read = []
    for of in ("a", "b", "b"):
        rarely(lambda: read.append(1), of)
    assert read == [1]


def test_a_failure_is_tried_again_at_the_next_call(clock):
    rarely = Rarely(5, clock)
    assert rarely(lambda: 1) == 1
    clock.now += 5
    with pytest.raises(OSError, match="gone"):
        rarely(lambda: (_ for _ in ()).throw(OSError("gone")))
    assert rarely(lambda: 2) == 2
    assert rarely(lambda: 3) == 2
