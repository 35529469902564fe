from __future__ import annotations

import numpy as np
import pytest

from detector.fakes import START, FakeClock, FakeReader, config_for, healthy, metric, node_names
from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading.job_reader import JobReader, JobReading

NODES = node_names(3)


def reader_of(**settings: object) -> tuple[JobReader, FakeReader]:
    """Return the reader of a job of which two metrics are recorded once a second."""
    config = config_for(metric("load"), metric("power"), metric("silent"), **settings)
    fake = FakeReader(FakeClock(START + 2000), config)
    values = {"load": healthy(3, 2000), "power": healthy(3, 2000, seed=1)}
    fake.add_job("job-1", values, NODES, START)
    return JobReader("job-1", fake, config), fake


def test_a_frame_reaches_back_as_far_as_new_windows_need() -> None:
    reader, _ = reader_of(prometheus={"lag_seconds": 0})
    now = START + 1500.0
    # The window of 8 samples and a fill of 10 s, longer the level of 15 s, at least 30 s in all.
    frames = reader.read(NODES, now, {"load": now - 60, "power": now - 1}).frames
    assert ["load", "power"] == list(frames)
    assert [now - 60 - 17, now] == frames["load"].times[[0, -1]].tolist()
    assert [now - 30, now] == frames["power"].times[[0, -1]].tolist()
    whole = reader.read(NODES, now, {}).frames["load"]
    assert [now - 900, now] == whole.times[[0, -1]].tolist()
    np.testing.assert_array_equal(healthy(3, 2000)[:, 600:1501], whole.values)


def test_what_is_held_can_be_looked_at() -> None:
    reader, _ = reader_of()
    reader.read(NODES, START + 1000.0, {})
    shown = reader.frame("load", ("node-02",), START + 500, START + 510)
    assert shown is not None
    np.testing.assert_array_equal(healthy(3, 2000)[2:, 500:511], shown.values)
    assert None is reader.frame("silent", NODES, START + 500, START + 510)
    assert None is reader.frame("unheard of", NODES, START + 500, START + 510)
    kept = [reader.kept_seconds(name) for name in ("load", "silent", "unheard of")]
    assert [900.0, 0.0, 0.0] == kept


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"load": "refused"}, None),
        ({"load": "too_large", "power": "http_4xx"}, None),
        ({"load": "refused", "power": "refused", "silent": "refused"}, "refused"),
        ({"power": "timeout"}, "timeout"),
        ({"load": "refused", "power": "truncated"}, "truncated"),
    ],
)
def test_a_metric_costs_itself_and_a_server_the_job(
    broken: dict[str, str], reason: str | None
) -> None:
    reader, fake = reader_of()
    fake.failures_by_query = {
        f"job_node:{name}:ratio": ReadError(why, "no")  # type: ignore[arg-type]
        for name, why in broken.items()
    }
    found = reader.read(NODES, START + 1000.0, {})
    assert reason == (None if found.job_error is None else found.job_error.reason)
    assert broken == {name: error.reason for name, error in found.errors.items() if error}
    assert {"load", "power"} - broken.keys() == found.frames.keys()


def test_a_job_without_failure_can_be_evaluated() -> None:
    assert None is JobReading({}, {"load": None}).job_error
