"""What is done once in a while is done whatever happens to the clock."""

from peerwatch_detector.diagnosis.every import Every


def test_it_is_due_once_in_a_period() -> None:
    minute = Every(60.0)
    assert [0, 60, 120] == [now for now in range(0, 150, 10) if minute.is_due(now)]


def test_a_clock_that_is_set_back_does_not_put_it_off() -> None:
    minute = Every(60.0)
    assert minute.is_due(10_000.0)
    assert minute.is_due(100.0)
    assert not minute.is_due(159.0)
    assert minute.is_due(160.0)
