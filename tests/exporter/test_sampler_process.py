"""A real sampler process on a real file tree: bursts, faults, costs, and its end."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
import time

import pytest

from peerwatch_exporter.sampler.process import Sampler
from peerwatch_exporter.sampler.window import Statistics
from peerwatch_exporter.settings.config import ExporterConfig
from sampler_node import LINE_RATE, Tree, sampler_on, settings_of, sources_of, until

TRANSMIT = ("transmit_bytes", "mlx5_0")


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def statistics_of(state):
    """Return the statistics by (counter, device)."""
    series = [item for group in state.layout.groups for item in group.series]
    return {
        (item.counter.name, item.device): Statistics(*values) if values is not None else None
        for item, values in zip(series, state.second["statistics"], strict=True)
    }


def measured(sampler):
    """Return the state once it holds a second; a new layout begins without one."""
    states = []

    def holds():
        states.append(sampler.state())
        return states[-1].second

    until(holds)
    return states[-1]


def process_of(sampler):
    until(lambda: sampler.state().second)
    return sampler._process.pid


def burst_of(sampler, query):
    status, body = sampler.burst(query)
    assert status.startswith("200"), body
    return json.loads(body)


def clocks_apart():
    """Return Unix time less the monotonic one, from the shortest of many looks at both."""
    looks = []
    for _ in range(100):
        before, unix, after = time.monotonic(), time.time(), time.monotonic()
        looks.append((after - before, unix - before))
    return min(looks)[1]


def ready(sampler, seconds=2.0):
    """Wait until the window holds its seconds."""
    until(
        lambda: (
            (second := sampler.state().second)
            and (second["end"] - second["begin"]) / 1e9 >= seconds
        )
    )


def test_burst_of_20_ms_at_line_rate_shows_where_a_mean_of_a_second_hides_it(tree):
    def bursts(seconds):
        # Each second begins with 20 ms at line rate; counters count 4-byte words.
        whole, part = divmod(seconds, 1)
        return (whole * 0.02 + min(part, 0.02)) * LINE_RATE / 4

    with (
        tree.rising("port_xmit_data", bursts),
        sampler_on(tree.root, interval_seconds=0.002, counters=("transmit_bytes",)) as sampler,
    ):
        ready(sampler)
        # A sampler that a busy machine lets wait past a burst sees it in one of the next windows.
        found = until(
            lambda: (
                (window := statistics_of(measured(sampler))[TRANSMIT])
                and window.maximum >= 0.9 * LINE_RATE
                and window
            )
        )

    assert found.maximum >= 0.9 * LINE_RATE
    assert found.mean <= 0.1 * LINE_RATE
    assert 0 < found.line_ratio < 0.2
    assert found.mean == pytest.approx(0.02 * LINE_RATE, rel=0.9)


def test_statistics_are_those_of_the_raw_samples(tree):
    def waves(seconds):
        # Far below the link's speed, so that a late write is not taken for a refresh.
        return (seconds + math.sin(seconds * 20) / 25) * LINE_RATE / 400

    changes = {"counters": ("transmit_bytes",), "line_rate_ratio": 0.01}
    with (
        tree.rising("port_xmit_data", waves),
        sampler_on(tree.root, **changes) as sampler,
    ):
        ready(sampler)
        state = sampler.state()
        offset = clocks_apart()
        raw = burst_of(sampler, "metric=nic_burst_transmit_bytes_per_second&seconds=10")
    (samples,) = raw["samples"]
    times, values, counts = samples["times"], samples["values"], samples["raw"]
    begin, end = (state.second[key] / 1e9 + offset for key in ("begin", "end"))
    moments = zip(times, values, strict=True)
    rates = [rate for moment, rate in moments if begin < moment <= end]
    found = statistics_of(state)[TRANSMIT]

    # The two clocks are set apart by microseconds: a sample at a border may be on either side.
    assert found.samples == pytest.approx(len(rates), abs=3)
    assert found.maximum == pytest.approx(max(rates), rel=1e-3)
    ordered = sorted(rates)
    index = math.ceil(0.99 * len(rates)) - 1
    assert ordered[index - 1] <= found.p99 * 1.001
    assert found.p99 <= ordered[min(index + 1, len(rates) - 1)] * 1.001
    at_line = sum(rate >= 0.01 * LINE_RATE for rate in rates)
    assert 0 < at_line < len(rates)
    assert found.line_ratio * found.samples == pytest.approx(at_line, abs=3)
    # Rates and raw counters tell the same story.
    for index in range(1, len(counts)):
        grown = values[index] * (times[index] - times[index - 1])
        assert counts[index] - counts[index - 1] == pytest.approx(grown, rel=0.01, abs=1e4)


def test_vanished_nic_costs_its_own_series_and_is_read_again_when_it_is_back(tree):
    tree.add("mlx5_1")
    device = tree.root / "class/infiniband/mlx5_1"
    with sampler_on(tree.root, counters=("transmit_bytes",)) as sampler:
        ready(sampler, 1.0)
        before = measured(sampler)
        shutil.move(device, tree.root / "unplugged")
        for name in ("port_xmit_data", "port_rcv_data"):
            (tree.root / "unplugged/ports/1/counters" / name).unlink()
        until(lambda: measured(sampler).second["missing"] == 1)
        until(lambda: statistics_of(measured(sampler))["transmit_bytes", "mlx5_1"] is None)
        present = statistics_of(measured(sampler))[TRANSMIT]
        tree.add("mlx5_1")
        until(lambda: measured(sampler).second["missing"] == 0)
        until(lambda: statistics_of(measured(sampler))["transmit_bytes", "mlx5_1"] is not None)

        assert 0 == before.second["missing"]
        assert present.samples > 0
        assert 0 == sampler.state().restarts


def test_new_nic_is_found(tree):
    with sampler_on(tree.root, counters=("transmit_bytes",)) as sampler:
        ready(sampler, 1.0)
        tree.add("mlx5_1")
        until(
            lambda: (
                (state := sampler.state()).second
                and ("transmit_bytes", "mlx5_1") in statistics_of(state)
            )
        )

        assert 1 == sampler.state().restarts


def test_port_that_trains_down_is_measured_by_its_new_speed(tree):
    with sampler_on(tree.root, counters=("transmit_bytes",)) as sampler:
        ready(sampler, 1.0)
        tree.set(tree.port("mlx5_0") / "rate", "200 Gb/sec (4X HDR)")
        until(lambda: sampler.state().layout.groups[0].series[0].line_rate == LINE_RATE / 2)

        assert 0 == sampler.state().restarts


def test_process_that_is_killed_is_started_again(tree):
    with sampler_on(tree.root) as sampler:
        first = process_of(sampler)
        os.kill(first, signal.SIGKILL)
        until(lambda: sampler.state().restarts == 1 and sampler.state().second)
        second = process_of(sampler)
        fresh = burst_of(sampler, "metric=nic_burst_cnp_packets_per_second")

    assert first != second
    assert 2 == len(fresh["samples"])


def test_process_that_stands_still_is_noticed_and_nothing_waits_for_it(tree):
    with sampler_on(tree.root) as sampler:
        pid = process_of(sampler)
        os.kill(pid, signal.SIGSTOP)
        try:
            until(lambda: sampler.state().stuck_seconds > 5)
            start = time.monotonic()
            sampler.state()
            sampler.burst("metric=nic_burst_transmit_bytes_per_second")
            waited = time.monotonic() - start
        finally:
            os.kill(pid, signal.SIGCONT)
        until(lambda: sampler.state().stuck_seconds == 0)

    assert waited < 20


def test_process_ends_with_the_exporter(tree):
    with sampler_on(tree.root) as sampler:
        pid = process_of(sampler)
        assert ["sampler"] == [
            use.process for use in sampler.sources.own_processes.use() if use.process != "main"
        ]

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_process_whose_parent_is_gone_ends_by_itself(tree):
    with sampler_on(tree.root) as sampler:
        process = (process_of(sampler), sampler._process)[1]
        # What remains of a parent that was killed: nobody reads the pipe.
        os.dup2(os.open(os.devnull, os.O_RDONLY), process.stdout.fileno())
        until(lambda: process.poll() is not None)

    assert 0 == process.returncode


def test_cost_above_the_limit_stretches_the_interval(tree):
    for number in range(1, 8):
        tree.add(f"mlx5_{number}")
    changes = {"interval_seconds": 0.001, "max_cpu_ratio": 0.001}
    with sampler_on(tree.root, **changes) as sampler:
        until(lambda: (second := sampler.state().second) and second["stretched"])
        until(lambda: measured(sampler).second["interval"] > 0.01)
        second = measured(sampler).second

    assert second["stretched"]
    assert second["interval"] > 0.01


def test_history_that_does_not_fit_is_refused(tree):
    changes = {"interval_seconds": 0.001, "history_seconds": 10_000.0}
    with sampler_on(tree.root, **changes) as sampler:
        until(lambda: sampler.state().refused)

        assert "more than 64 MiB" in sampler.state().refused
        assert sampler.state().second is None


def test_node_without_rdma_runs_and_has_nothing(tmp_path):
    with sampler_on(tmp_path) as sampler:
        until(lambda: sampler.state().second)

        assert () == sampler.state().layout.groups
        assert [] == sampler.state().second["statistics"]


def test_sampler_that_is_off_starts_nothing(tmp_path):
    sampler = Sampler(ExporterConfig(), sources_of(tmp_path))
    sampler.start()
    status, body = sampler.burst("metric=nic_burst_transmit_bytes_per_second")
    sampler.stop()

    assert sampler._process is None
    assert "503 Service Unavailable" == status
    assert "sampler.interval_milliseconds" in json.loads(body)["error"]


@pytest.mark.parametrize(
    "script",
    ["raise SystemExit(1)", "print('garbage')", "import os; os.write(1, b'x' * (5 << 20))"],
    ids=["ends", "garbage", "flood"],
)
def test_program_that_is_no_sampler_is_started_again_and_harms_nothing(tmp_path, script):
    sampler = Sampler(
        ExporterConfig(),
        sources_of(tmp_path),
        command=(sys.executable, "-c", script),
        settings=settings_of(tmp_path),
    )
    sampler.start()
    try:
        until(lambda: sampler.state().restarts)
        assert sampler.state().second is None
        assert sampler.burst("")[0].startswith("200")
    finally:
        sampler.stop()


def test_process_that_may_not_be_nice_samples_all_the_same(tree):
    # As system call filters answer.
    script = (
        "import os, sys\n"
        "def refuse(increment): raise PermissionError(1, 'Operation not permitted')\n"
        "os.nice = refuse\n"
        "from peerwatch_exporter.sampler.__main__ import main\n"
        "sys.exit(main())\n"
    )
    sampler = Sampler(
        ExporterConfig(),
        sources_of(tree.root),
        command=(sys.executable, "-c", script),
        settings=settings_of(tree.root),
    )
    sampler.start()
    try:
        until(lambda: sampler.state().second is not None or sampler.state().restarts)
        assert 0 == sampler.state().restarts
    finally:
        sampler.stop()


def test_command_that_cannot_be_started_harms_nothing(tmp_path):
    missing = tmp_path / "no-such-program"
    settings = settings_of(tmp_path)
    sampler = Sampler(
        ExporterConfig(), sources_of(tmp_path), command=(str(missing),), settings=settings
    )
    sampler.start()
    try:
        until(lambda: sampler.state().restarts)
    finally:
        sampler.stop()

    assert sampler.state().second is None
