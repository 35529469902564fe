"""Counters on a grid finer than a second: right rates, each instant once, nothing made up."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_common.errors import ConfigError
from peerwatch_exporter.sampler.fine import FineSamples, _on_grid
from peerwatch_exporter.sampler.ring import MISSING
from peerwatch_exporter.settings.load import load_config
from sampler_node import Tree, sampler_on, until

SECOND = 10**9


def test_rises_between_instants_are_taken_from_the_line_between_samples():
    times = [0, SECOND // 10, 3 * SECOND // 10]
    actual = _on_grid(times, [0, 100, 300], [0, SECOND // 10, 2 * SECOND // 10], 10)
    assert [1000, pytest.approx(1000)] == actual


@pytest.mark.parametrize(
    ("times", "values"),
    [
        ([0, 2 * SECOND], [0, 500]),  # too far apart
        ([0, SECOND // 2], [500, 0]),  # a reset
        ([0, SECOND // 2], [0, MISSING]),  # could not be read
        ([SECOND // 4, SECOND // 2], [0, 500]),  # begins too late
        ([], []),
    ],
)
def test_what_is_not_known_is_left_out(times, values):
    assert [None] == _on_grid(times, values, [0, SECOND // 3], 1)


@given(st.lists(st.tuples(st.integers(0, 5 * SECOND), st.integers(-1, 2**63 - 1)), max_size=50))
def test_no_rows_make_it_fail_and_no_rate_is_negative(rows):
    rows = sorted(rows)
    instants = [step * SECOND / 10 for step in range(50)]
    rates = _on_grid([t for t, _ in rows], [v for _, v in rows], instants, 10)
    assert len(instants) - 1 == len(rates)
    assert all(rate is None or rate >= 0 for rate in rates)


def test_a_burst_shows_in_its_tenths_and_every_instant_comes_once(tmp_path):
    tree = Tree(tmp_path, devices=2)
    with sampler_on(tmp_path, counters=("transmit_bytes",)) as sampler:
        fine = FineSamples(sampler, 0.1, time.time, time.monotonic)
        until(lambda: any(item.rows for item in fine(time.time() - 1, time.time())))
        begun = time.time()
        for device in ("mlx5_0", "mlx5_1"):
            path = tree.counter("port_xmit_data", device)
            tree.set(path, int(path.read_text()) + 1_000_000)
        until(lambda: time.time() > begun + 3)
        middle = begun + 1.03
        parts = [fine(begun, middle), fine(middle, begun + 2.5)]
    whole = [row for part in parts for item in part for row in item.rows]
    instants = [round(row[2] * 10) for row in whole]
    assert list(range(instants[0], instants[-1] + 1)) == instants
    # Two ports, a million 32-bit words each, within one or two tenths.
    assert pytest.approx(8e6) == sum(row[1] for row in whole) * 0.1
    assert sum(row[1] > 0 for row in whole) <= 3


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"fast": {"fine_step_milliseconds": 100}}, "needs history_seconds"),
        (
            {"fast": {"fine_step_milliseconds": 100, "history_seconds": 20}},
            "needs sampler.interval_milliseconds",
        ),
        (
            {
                "fast": {"fine_step_milliseconds": 10, "history_seconds": 20},
                "sampler": {"interval_milliseconds": 50},
            },
            "at or below it, not 50",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, expected, tmp_path):
    path = tmp_path / "exporter.yaml"
    path.write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match=expected):
        load_config(path, listen=None, known_collectors=())
