"""What swings with the steps of a job is a mean on the full endpoint: no part of a step is lost."""

from __future__ import annotations

from fake_collectors import Returning, sources_at, worker_of
from hardware_cases import FakeClock
from peerwatch_exporter.collector import all_metrics
from peerwatch_exporter.schedule.rolling_mean import RollingMean
from peerwatch_exporter.schedule.runner import Runner

CATALOG = all_metrics()

GPU = ("0", "GPU-0")


def busy(**values):
    family = CATALOG["gpu_utilization_ratio"].family()
    for gpu, value in values.items():
        family.add_metric((gpu.removeprefix("gpu"), gpu), value)
    return family


def shown(means, family, now):
    (item,) = means([family], now)
    return {labels[0]: value for labels, value in item.rows}


def test_a_step_of_five_seconds_reads_the_same_in_each_of_its_seconds():
    step = [1.0, 1.0, 1.0, 0.6, 0.2]
    means = RollingMean(5)
    found = [shown(means, busy(gpu0=step[now % 5]), 100.0 + now)["0"] for now in range(20)]

    assert [0.76] * 16 == found[4:]


def test_a_tick_that_comes_late_or_early_changes_nothing():
    means = RollingMean(3)
    for late, value in ((0.0, 0.9), (1.004, 0.1), (1.996, 0.2), (3.003, 0.6)):
        found = shown(means, busy(gpu0=value), 100.0 + late)

    assert {"0": 0.3} == found


def test_what_was_not_read_for_a_while_is_no_part_of_the_mean():
    means = RollingMean(5)
    shown(means, busy(gpu0=1.0), 100.0)

    assert {"0": 0.2} == shown(means, busy(gpu0=0.2), 107.0)


def test_a_gpu_that_is_gone_is_gone_at_once_and_one_that_comes_has_its_own_mean():
    means = RollingMean(5)
    shown(means, busy(gpu0=1.0, gpu1=1.0), 100.0)

    assert {"1": 0.5, "2": 0.4} == shown(means, busy(gpu1=0.0, gpu2=0.4), 101.0)


def test_counters_and_what_stands_still_are_left_as_they_are():
    energy = CATALOG["gpu_energy_joules_total"].family()
    energy.add_metric(GPU, 5.0)
    means = RollingMean(5)

    assert [energy] == list(means([energy], 100.0))


def test_a_mean_that_stays_is_the_same_object():
    means = RollingMean(5)
    (first,) = means([busy(gpu0=0.5)], 100.0)
    (second,) = means([busy(gpu0=0.5)], 101.0)

    assert first is second


def test_what_stands_still_as_the_very_same_object_counts_like_what_says_the_same():
    same, other = RollingMean(5), RollingMean(5)
    family = busy(gpu0=0.5)
    for now in range(20):
        if now in {7, 8, 15}:
            family = busy(gpu0=now / 10, gpu1=0.25)
        (kept,) = same([family], 100.0 + now)
        (made,) = other([busy(**{uuid: value for (_, uuid), value in family.rows})], 100.0 + now)
        assert made.rows == kept.rows, now


def test_one_second_leaves_everything_as_it_is():
    means, family = RollingMean(1), busy(gpu0=0.123456789012345)

    assert [family] == list(means([family], 100.0))


def test_the_full_exposition_shows_the_mean_and_the_fast_one_the_second(tmp_path):
    clock, collector = FakeClock(), Returning("gpu_utilization_ratio", labels=GPU)
    worker = worker_of(collector, "gpu", clock)
    runner = Runner(
        [worker], sources_at(tmp_path, clock), deadline_seconds=20, version="1", mean_seconds=5
    )
    for value in (1.0, 0.2):
        collector.value = value
        newest = runner.tick()
        clock.now += 1
    worker.close()

    full = {item.spec.name: item.rows for item in newest.families}
    fast = {item.spec.name: item.rows for item in newest.fast_history[-1].families}
    assert [(GPU, 0.6)] == full["gpu_utilization_ratio"]
    assert [(("0",), 0.2)] == fast["fast_gpu_utilization_ratio"]


def test_only_gauges_swing():
    assert {"gauge"} == {spec.kind for spec in CATALOG.values() if spec.swings}
