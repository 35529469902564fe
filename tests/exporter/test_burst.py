"""What /burst answers: samples, the list of metrics, and every kind of query it refuses."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_exporter.catalog.sampled_counters import COUNTERS
from peerwatch_exporter.sampler.burst import MAX_POINTS, answer, parse
from peerwatch_exporter.sampler.layout import RingLayout, SampledGroup, SampledSeries
from peerwatch_exporter.sampler.process import SamplerState
from peerwatch_exporter.sampler.ring import MISSING, RingError, Rows

TRANSMIT = "nic_burst_transmit_bytes_per_second"
CNP = "nic_burst_cnp_packets_per_second"
POWER = "gpu_burst_power_watts"
NOW = 1_767_300_000.0
LINE_RATE = 50e9


def series(name, device="mlx5_0", line_rate=None):
    return SampledSeries(COUNTERS[name], device, "1", line_rate)


class Source:
    """Ten seconds of two ports, a sample every 10 ms, and of a GPU."""

    history_seconds = 10.0
    now = NOW
    monotonic = 1000.0

    def __init__(self, groups=None, second=None):
        self.groups = groups or (
            SampledGroup(
                0.01,
                tuple(series("transmit_bytes", f"mlx5_{n}", LINE_RATE) for n in range(2)),
                1200,
            ),
            SampledGroup(0.02, (series("cnp_sent"), series("cnp_handled")), 600),
        )
        self.state = SamplerState(RingLayout(tuple(self.groups)), second)
        self.gpu_samples = {
            ("0", "GPU-a", POWER): [(NOW - 2 + n / 50, 100.0 + n) for n in range(100)]
        }
        self.spoil = None

    def rows(self, group, count):
        if self.spoil is not None:
            raise self.spoil
        samples = min(count, round(10 / group.interval_seconds))
        step = round(group.interval_seconds * 1e9)
        end = int(self.monotonic * 1e9)
        times = [end - step * (samples - 1 - number) for number in range(samples)]
        # Each series rises by 250 counts per step, times its place.
        return Rows(
            times,
            [[250 * (1 + n) * t // step for t in times] for n in range(len(group.series))],
        )


def ask(source=None, /, **parameters):
    status, body = answer(urlencode(parameters), source or Source())
    return status, json.loads(body)


def samples_of(found):
    return {
        tuple(entry[k] for k in ("device", "direction") if k in entry): entry for entry in found
    }


def test_samples_have_unix_times_rates_and_raw_counters():
    status, found = ask(metric=TRANSMIT, seconds=1)
    first, second = found["samples"]

    assert "200 OK" == status
    assert (TRANSMIT, "bytes per second", 0.01) == (
        found["metric"],
        found["unit"],
        found["interval_seconds"],
    )
    assert ("mlx5_0", "1", "mlx5_1") == (first["device"], first["port"], second["device"])
    assert 100 == len(first["times"]) == len(first["values"]) == len(first["raw"])
    assert (NOW - 0.99, NOW) == (first["times"][0], first["times"][-1])
    # 250 words in 10 ms.
    assert {100_000.0} == set(first["values"])
    assert {200_000.0} == set(second["values"])
    assert 1000 == first["raw"][1] - first["raw"][0]


def test_five_seconds_are_the_default():
    _, found = ask(metric=TRANSMIT, device="mlx5_1")

    assert [500] == [len(entry["times"]) for entry in found["samples"]]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, {("mlx5_0", "transmit"), ("mlx5_0", "receive")}),
        ({"direction": "receive"}, {("mlx5_0", "receive")}),
        ({"device": "mlx5_0", "port": "1", "direction": "transmit"}, {("mlx5_0", "transmit")}),
        ({"device": "mlx5_9"}, set()),
        ({"gpu": "0"}, set()),
    ],
)
def test_filters_choose_series(filters, expected):
    _, found = ask(metric=CNP, **filters)

    assert expected == set(samples_of(found["samples"]))


def test_gpu_samples_are_the_drivers_own():
    _, found = ask(metric=POWER, seconds=1, gpu="0")
    (entry,) = found["samples"]

    assert (0.02, "watts") == (found["interval_seconds"], found["unit"])
    assert ("0", "GPU-a") == (entry["gpu"], entry["uuid"])
    assert [150.0 + number for number in range(1, 50)] == entry["values"] == entry["raw"]
    assert [] == ask(metric=POWER, gpu="1")[1]["samples"]


def test_missing_samples_are_left_out():
    source = Source()
    complete = source.rows

    def gap(group, count):
        rows = complete(group, count)
        rows.columns[0][-3] = MISSING
        return rows

    source.rows = gap
    _, found = ask(source, metric=TRANSMIT, seconds=1)

    assert [98, 100] == [len(entry["values"]) for entry in found["samples"]]
    assert all(value > 0 for value in found["samples"][0]["raw"])


def test_counter_refreshed_rarely_does_not_seem_faster_than_its_link():
    group = SampledGroup(0.01, (series("transmit_bytes", "mlx5_0", 1e6),), 1200)
    source = Source((group,))
    complete = source.rows

    def rare(group, count):
        rows = complete(group, count)
        # 0.4 MB/s, seen once in 100 ms.
        counts = [time // 10**8 * 10_000 for time in rows.times]
        return Rows(rows.times, [counts])

    source.rows = rare
    _, found = ask(source, metric=TRANSMIT, seconds=5)
    values = found["samples"][0]["values"]

    assert pytest.approx(0.4e6, rel=0.1) == sum(values[50:-20]) / len(values[50:-20])
    assert max(values[50:]) < 1.1e6


def test_without_a_metric_there_is_the_list_of_them():
    second = {"intervals": [0.0105, 0.021]}
    status, found = ask(Source(second=second))
    metrics = {entry["metric"]: entry for entry in found["metrics"]}

    assert "200 OK" == status
    assert 10 == found["history_seconds"]
    assert {TRANSMIT, CNP, POWER} == metrics.keys()
    assert "packets per second" == metrics[CNP]["unit"]
    assert {
        "device": "mlx5_1",
        "port": "1",
        "interval_seconds": 0.0105,
        "available_seconds": 9.99,
    } == metrics[TRANSMIT]["series"][1]
    assert ["transmit", "receive"] == [entry["direction"] for entry in metrics[CNP]["series"]]
    assert [("0", 2.0)] == [
        (entry["gpu"], entry["available_seconds"]) for entry in metrics[POWER]["series"]
    ]


def test_list_of_a_sampler_that_has_just_begun():
    source = Source()
    source.gpu_samples = {}
    source.rows = lambda group, count: None
    _, found = ask(source)

    assert {0.0} == {e["available_seconds"] for m in found["metrics"] for e in m["series"]}
    assert [] == ask(source, metric=TRANSMIT)[1]["samples"]


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("metric=nic_speed", "404 Not Found", ["'nic_speed'", TRANSMIT]),
        (f"metric={TRANSMIT}&seconds=0", "400 Bad Request", ["'0'", "0.001 to 10"]),
        (f"metric={TRANSMIT}&seconds=11", "400 Bad Request", ["'11'", "history_seconds"]),
        (f"metric={TRANSMIT}&seconds=nan", "400 Bad Request", ["'nan'"]),
        (f"metric={TRANSMIT}&seconds=soon", "400 Bad Request", ["'soon'"]),
        (f"metric={TRANSMIT}&seconds=", "400 Bad Request", ["''"]),
        (f"metric={TRANSMIT}&window=5", "400 Bad Request", ["'window'", "seconds"]),
        (f"metric={TRANSMIT}&metric={CNP}", "400 Bad Request", ["'metric'", "once"]),
        ("device=" + "x" * 3000, "400 Bad Request", ["3007", "2000"]),
    ],
)
def test_query_that_cannot_be_answered_says_why(query, status, words):
    found, body = answer(query, Source())

    assert status == found
    assert [] == [word for word in words if word not in json.loads(body)["error"]]


def test_answer_is_bounded():
    group = SampledGroup(
        0.001, tuple(series("transmit_bytes", f"mlx5_{n}") for n in range(32)), 12_000
    )
    status, found = ask(Source((group,)), metric=TRANSMIT, seconds=10)

    assert "400 Bad Request" == status
    assert str(MAX_POINTS) in found["error"]
    assert "fewer seconds" in found["error"]
    assert "200 OK" == ask(Source((group,)), metric=TRANSMIT, seconds=10, device="mlx5_7")[0]


def test_broken_memory_is_said_and_not_raised():
    source = Source()
    source.spoil = RingError("The memory is no ring.")
    status, found = ask(source, metric=TRANSMIT)

    assert "503 Service Unavailable" == status
    assert "no ring" in found["error"]


_TEXTS = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [TRANSMIT, CNP, POWER, "1", "0.5", "1e400", "-1", "mlx5_0", "inf", "%ff", "0x1"]
    ),
)
_NAMES = st.one_of(
    st.sampled_from(["metric", "seconds", "device", "port", "direction", "gpu"]),
    st.text(max_size=10),
)


@given(
    st.one_of(
        st.text(max_size=200),
        st.lists(st.tuples(_NAMES, _TEXTS), max_size=5).map(urlencode),
        st.lists(st.tuples(_NAMES, _TEXTS), max_size=5).map(
            lambda pairs: "&".join(f"{name}={value}" for name, value in pairs)
        ),
    )
)
def test_no_query_raises(query):
    status, body = answer(query, Source())

    assert status.split()[0] in {"200", "400", "404"}
    assert isinstance(json.loads(body), dict)
    if status.startswith("200"):
        assert 0.001 <= parse(query, 10.0).seconds <= 10
