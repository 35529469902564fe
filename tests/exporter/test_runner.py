"""The runner: who runs at which tick, and what a snapshot holds."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from fake_collectors import (
    Blocking,
    Failing,
    Returning,
    Rows,
    Scripted,
    sources_at,
    wait_until,
    worker_of,
)
from hardware_cases import NOW, FakeClock
from peerwatch_exporter.schedule.runner import Runner


@pytest.fixture
def make(tmp_path):
    """Return a function that makes a runner; blocked collectors end with the test."""
    blocking, runners = [], []

    def runner(*workers, deadline=20.0, clock=None, intervals=None, **collectors):
        clock = clock or FakeClock()
        blocking.extend(item for item in collectors.values() if isinstance(item, Blocking))
        made = [
            worker_of(item, name, clock, (intervals or {}).get(name, 1.0))
            for name, item in collectors.items()
        ]
        runners.append(
            Runner(
                [*workers, *made],
                sources_at(tmp_path, clock),
                deadline_seconds=deadline,
                version="1.2.3",
                max_series=10,
            )
        )
        return runners[-1]

    yield runner
    for item in blocking:
        item.let_go.set()
    for item in runners:
        item.stop()


def samples(families):
    return {(item.spec.name, *labels): value for item in families for labels, value in item.rows}


def run_ticks(runner, clock, count):
    for _ in range(count):
        runner.tick()
        clock.now += 1


def test_the_exporters_own_processes_are_looked_at_every_5_s(make, monkeypatch):
    clock = FakeClock()
    runner = make(clock=clock, cpu=Returning())
    asked = []
    use = runner._processes.use
    monkeypatch.setattr(runner._processes, "use", lambda: asked.append(clock.now) or use())
    run_ticks(runner, clock, 11)
    assert 3 == len(asked)
    assert [5, 5] == [later - earlier for earlier, later in pairwise(asked)]


def test_exposition_has_every_family_and_says_how_each_collector_did(make):
    runner = make(cpu=Returning(), other=Returning("host_load1", 0.5))
    collected = {("host_cpus",): 2.0, ("host_load1",): 0.5}
    own = {
        ("exporter_build_info", "1.2.3"): 1,
        ("exporter_snapshot_timestamp_seconds",): NOW,
        ("exporter_snapshot_missed_total",): 0,
        ("exporter_cpu_seconds_total", "driver"): 2.5,
        ("exporter_cpu_seconds_total", "main"): 1.25,
        ("exporter_resident_memory_bytes", "driver"): 20971520,
        ("exporter_resident_memory_bytes", "main"): 31457280,
        ("exporter_collector_success", "cpu"): 1,
        ("exporter_collector_success", "other"): 1,
        ("exporter_collector_duration_seconds", "cpu"): 0,
        ("exporter_collector_duration_seconds", "other"): 0,
        ("exporter_collector_last_success_timestamp_seconds", "cpu"): NOW,
        ("exporter_collector_last_success_timestamp_seconds", "other"): NOW,
        ("exporter_collector_timeouts_total", "cpu"): 0,
        ("exporter_collector_timeouts_total", "other"): 0,
        ("exporter_collector_stuck_seconds", "cpu", ""): 0,
        ("exporter_collector_stuck_seconds", "other", ""): 0,
        ("exporter_collector_dropped_series", "cpu"): 0,
        ("exporter_collector_dropped_series", "other"): 0,
        ("exporter_config_last_reload_successful",): 1,
        ("exporter_config_last_reload_success_timestamp_seconds",): NOW,
        ("exporter_config_reloads_total", "success"): 0,
        ("exporter_config_reloads_total", "failure"): 0,
    }
    snapshot = runner.tick()
    assert {**collected, **own, ("exporter_series",): 26} == samples(snapshot.families)
    assert {**own, ("exporter_series",): 24} == samples(snapshot.own)
    assert (1, NOW, NOW) == (snapshot.number, snapshot.time, snapshot.monotonic)


def test_failure_takes_down_only_its_own_collector(make):
    exposition = samples(
        make(bad=Failing(PermissionError(13, "denied")), cpu=Returning()).tick().families
    )
    assert (2.0, 1) == (exposition["host_cpus",], exposition["exporter_collector_success", "cpu"])
    assert 0 == exposition["exporter_collector_success", "bad"]
    assert 1 == exposition["exporter_collector_error_info", "bad", "permission_denied"]
    assert ("host_load1",) not in exposition
    assert ("exporter_collector_last_success_timestamp_seconds", "bad") not in exposition


def test_stuck_collector_is_left_out_and_the_others_go_on(make):
    stuck, clock = Blocking(), FakeClock()
    runner = make(deadline=0.05, clock=clock, gpu=stuck, cpu=Returning())
    first = samples(runner.tick().families)
    clock.now += 10
    wait_until(lambda: ["gpu"] == runner.stuck())
    # So that a busy machine is not taken for a collector that is stuck.
    runner._deadline_seconds = 60
    second = samples(runner.tick().families)
    assert 1 == stuck.started
    assert (2.0, 1) == (second["host_cpus",], second["exporter_collector_success", "cpu"])
    assert 0 == first["exporter_collector_success", "gpu"]
    assert 1 == first["exporter_collector_error_info", "gpu", "deadline_exceeded"]
    assert ("host_load1",) not in first
    assert [0, 10] == [
        exposition["exporter_collector_stuck_seconds", "gpu", ""] for exposition in (first, second)
    ]
    assert ["gpu"] == runner.stuck()


def test_collector_that_came_back_is_in_the_exposition_again(make):
    stuck = Blocking()
    runner = make(deadline=0.05, gpu=stuck)
    assert 0 == samples(runner.tick().families)["exporter_collector_success", "gpu"]
    stuck.let_go.set()
    wait_until(lambda: not runner.stuck())
    runner._deadline_seconds = 60
    exposition = samples(runner.tick().families)
    assert 2 == stuck.started
    assert (1, 0, 1, 2.0) == (
        exposition["exporter_collector_success", "gpu"],
        exposition["exporter_collector_stuck_seconds", "gpu", ""],
        exposition["exporter_collector_timeouts_total", "gpu"],
        exposition["host_load1",],
    )


def test_one_stuck_gpu_is_named(make):
    clock = FakeClock()
    worker = Scripted("gpu", clock=clock)
    worker.stuck_seconds = {"3": 12.5}
    exposition = samples(make(worker, clock=clock).tick().families)
    assert (0, 12.5) == (
        exposition["exporter_collector_stuck_seconds", "gpu", ""],
        exposition["exporter_collector_stuck_seconds", "gpu", "3"],
    )


def test_worker_that_raises_is_a_failed_collector(make):
    clock = FakeClock()
    worker = Scripted("gpu", clock=clock)
    worker.failure = BrokenPipeError(32, "the driver process is gone")
    exposition = samples(make(worker, clock=clock, cpu=Returning()).tick().families)
    assert (0, 1, 2.0) == (
        exposition["exporter_collector_success", "gpu"],
        exposition["exporter_collector_error_info", "gpu", "os_error"],
        exposition["host_cpus",],
    )


def test_own_times_have_no_digits_that_say_nothing(make):
    class Precise(Scripted):
        def report(self, deadline):
            report = super().report(deadline)
            return report._replace(duration=0.1 + 0.2, last_success=NOW + 1 / 3)

    clock = FakeClock()
    exposition = samples(make(Precise("gpu", clock=clock), clock=clock).tick().families)
    assert 0.3 == exposition["exporter_collector_duration_seconds", "gpu"]
    assert NOW + 0.333 == exposition["exporter_collector_last_success_timestamp_seconds", "gpu"]


def test_what_is_said_of_collectors_is_the_same_object_until_one_fares_otherwise(make):
    clock = FakeClock()
    gpu, nic = Scripted("gpu", clock=clock), Scripted("nic", clock=clock)
    runner = make(gpu, nic, clock=clock)
    names = [
        "exporter_collector_success",
        "exporter_collector_stuck_seconds",
        "exporter_collector_error_info",
    ]

    def families():
        clock.now += 1
        found = {item.spec.name: item for item in runner.tick().families}
        return [found.get(name) for name in names]

    success, stuck, errors = families()
    assert [success, stuck, errors] == families()
    assert [(("gpu",), 1), (("nic",), 1)] == success.rows
    assert errors is None
    nic.success = False
    success, stuck, errors = families()
    assert [(("gpu",), 1), (("nic",), 0)] == success.rows
    assert [(("nic", "deadline_exceeded"), 1)] == errors.rows
    nic.stuck_seconds = {"": 2.0}
    assert [(("gpu", ""), 0.0), (("nic", ""), 2.0)] == families()[1].rows
    nic.success, nic.stuck_seconds = True, {}
    success, stuck, errors = families()
    assert [(("gpu",), 1), (("nic",), 1)] == success.rows
    assert errors is None


def test_durations_are_said_anew_every_5_s_and_whenever_a_collector_fares_otherwise(make):
    clock = FakeClock()

    class Slower(Scripted):
        def report(self, deadline):
            return super().report(deadline)._replace(duration=float(len(self.asked)))

    gpu = Slower("gpu", clock=clock)
    runner = make(gpu, clock=clock)

    def duration():
        clock.now += 1
        return samples(runner.tick().families)["exporter_collector_duration_seconds", "gpu"]

    assert [1, 1, 1, 1, 1, 6, 6] == [duration() for _ in range(7)]
    gpu.success = False
    assert 8 == duration()


def test_who_is_not_due_is_asked_nothing(make):
    clock = FakeClock()

    class Silent(Scripted):
        questions = 0

        def is_stuck(self):
            self.questions += 1
            return super().is_stuck()

    slow = Silent("slow", 10, clock)
    runner = make(slow, Scripted("fast", 1, clock), clock=clock)
    runner.tick()
    before = slow.questions
    run_ticks(runner, clock, 8)
    assert len(slow.asked) == 1
    assert slow.questions == before


def test_everybody_runs_at_the_first_tick_and_then_at_its_own_interval(make):
    clock = FakeClock()
    fast, slow = Scripted("fast", 1, clock), Scripted("slow", 10, clock)
    runner = make(fast, slow, clock=clock)
    run_ticks(runner, clock, 40)
    assert [float(second) for second in range(40)] == fast.asked
    assert 5 == len(slow.asked)
    assert 0 == slow.asked[0]
    assert [10, 10, 10] == [b - a for a, b in zip(slow.asked[1:], slow.asked[2:], strict=False)]


def test_slow_collectors_do_not_all_run_at_the_same_tick(make):
    clock = FakeClock()
    slow = [Scripted(f"slow{number}", 10, clock) for number in range(5)]
    inventory = [Scripted(f"inventory{number}", 60, clock) for number in range(3)]
    run_ticks(make(*slow, *inventory, clock=clock), clock, 130)
    for tier in (slow, inventory):
        moments = [moment for worker in tier for moment in worker.asked if moment > 0]
        assert len(set(moments)) == len(moments)


def test_collector_that_is_not_due_keeps_its_values(make):
    clock = FakeClock()
    slow = Returning("host_load1", 1.0)
    runner = make(clock=clock, intervals={"slow": 10.0}, slow=slow, fast=Returning())
    runner.tick()
    clock.now += 1
    slow.value = 5.0
    assert 1.0 == samples(runner.tick().families)["host_load1",]
    assert 5.0 == samples(runner.tick(everybody=True).families)["host_load1",]


def test_slow_collector_that_failed_is_tried_again_soon_and_then_less_often(make):
    clock = FakeClock()
    worker = Scripted("inventory", 60, clock)
    worker.success = False
    run_ticks(make(worker, clock=clock), clock, 200)
    assert [0, 1, 3, 7, 15, 31, 63, 123, 183] == worker.asked


def test_stuck_worker_is_asked_again_at_the_first_tick_after_it_came_back(make):
    clock = FakeClock()
    worker = Scripted("gpu", 10, clock)
    runner = make(worker, clock=clock)
    worker.success, worker.stuck, worker.stuck_seconds = False, False, {"": 0.8}
    runner.tick()
    worker.stuck = True
    clock.now += 1
    run_ticks(runner, clock, 20)
    worker.stuck, worker.success, worker.stuck_seconds = False, True, {}
    runner.tick()
    assert [0, 21] == worker.asked


def test_stuck_gpu_of_a_slow_collector_is_followed_every_second(make):
    clock = FakeClock()
    worker = Scripted("health", 60, clock)
    runner = make(worker, clock=clock)
    seen = []
    for stuck in ({"3": 1.0}, {"3": 2.0}, {}, {}):
        worker.stuck_seconds = stuck
        seen.append(
            [
                value
                for key, value in samples(runner.tick().families).items()
                if key[0] == "exporter_collector_stuck_seconds"
            ]
        )
        clock.now += 1
    assert [[0, 1.0], [0, 2.0], [0], [0]] == seen
    assert [0] == worker.asked


def test_flood_of_series_is_cut_and_counted(make):
    flood = Rows(
        host_load1=[((), 0.5)],
        rank_threads=[(("job", str(number)), number) for number in range(50)],
        host_cpus=[((), 4)],
    )
    exposition = samples(make(ranks=flood, cpu=Returning("host_boot_time_seconds")).tick().families)
    kept = [key for key in exposition if key[0] == "rank_threads"]
    assert [("rank_threads", "job", str(number)) for number in range(9)] == kept
    assert ((0.5, 42), 1, 0) == (
        (exposition["host_load1",], exposition["exporter_collector_dropped_series", "ranks"]),
        exposition["exporter_collector_error_info", "ranks", "series_limit"],
        exposition["exporter_collector_dropped_series", "cpu"],
    )
    assert ("host_cpus",) not in exposition
    assert exposition["exporter_collector_success", "ranks"] == 1


def test_family_from_two_collectors_stands_once_with_all_its_series(make):
    runner = make(
        first=Returning("host_job_info", 1, ("a", "slurm")),
        second=Returning("host_job_info", 9, ("a", "slurm")),
        third=Returning("host_job_info", 1, ("b", "slurm")),
    )
    for _ in range(2):
        found = [item for item in runner.tick().families if item.spec.name == "host_job_info"]
        assert [[(("a", "slurm"), 1), (("b", "slurm"), 1)]] == [item.rows for item in found]


def test_joining_families_leaves_what_each_collector_gave_as_it_was(make):
    clock = FakeClock()
    slow = Returning("host_job_info", 1, ("a", "slurm"))
    fast = Rows(host_job_info=[(("b", "slurm"), 1)])
    runner = make(clock=clock, intervals={"a": 60.0}, a=slow, b=fast)
    first = runner.tick()
    fast.rows = {"host_job_info": [(("c", "slurm"), 1)]}
    clock.now += 1
    second = runner.tick()
    assert [["a", "b"], ["a", "c"]] == [
        [
            labels[0]
            for item in families
            if item.spec.name == "host_job_info"
            for labels, _ in item.rows
        ]
        for families in (first.families, second.families)
    ]


def test_label_set_published_twice_stands_once_with_its_first_value(make):
    twice = Rows(host_load1=[((), 1.5), ((), 2.5)], host_cpus=[])
    exposition = make(cpu=twice).tick().families
    assert [[((), 1.5)]] == [item.rows for item in exposition if item.spec.name == "host_load1"]
    assert "host_cpus" not in {item.spec.name for item in exposition}


def test_family_that_says_nothing_new_is_the_same_object(make):
    changing = Rows(host_load1=[((), 1.0)], host_cpus=[((), 8)])
    runner = make(load=changing)

    def families():
        return {item.spec.name: item for item in runner.tick().families}

    first, second = families(), families()
    changing.rows["host_load1"] = [((), 2.0)]
    third = families()
    assert first["host_load1"] is second["host_load1"]
    assert [[((), 1.0)], [((), 2.0)]] == [
        exposition["host_load1"].rows for exposition in (second, third)
    ]
    assert first["host_cpus"] is third["host_cpus"]


def test_snapshot_does_not_change_once_it_is_made(make):
    changing = Returning("host_load1", 1.0)
    runner = make(load=changing)
    first = runner.tick()
    before = samples(first.families)
    changing.value = 2.0
    second = runner.tick()
    assert before == samples(first.families)
    assert (1.0, 2.0) == (before["host_load1",], samples(second.families)["host_load1",])


def test_making_a_runner_runs_nothing(make):
    collector = Returning()
    make(gpu=collector)
    assert 0 == collector.runs


def test_before_the_first_snapshot_there_is_none_but_the_exporter_knows_itself(make):
    runner = make(cpu=Returning())
    assert runner.snapshot(0) is None
    own = samples(runner.own())
    assert (1, 11) == (own["exporter_build_info", "1.2.3"], own["exporter_series",])
    assert ("exporter_snapshot_timestamp_seconds",) not in own


def test_waiting_for_the_first_snapshot_ends_when_it_is_there(make):
    runner = make(cpu=Returning())
    threading.Timer(0.1, runner.tick).start()
    assert 1 == runner.snapshot(60).number


def test_status_says_how_each_collector_did(make):
    clock = FakeClock()
    stuck = Scripted("nvlink", 10, clock)
    stuck.success, stuck.stuck_seconds = False, {"": 3.0, "1": 5.0}
    runner = make(stuck, clock=clock, cpu=Returning(), bad=Failing(OSError("x")))
    before = {item.name: item.success for item in runner.status()}
    runner.tick()
    after = {item.name: item for item in runner.status()}
    assert {"bad": False, "cpu": False, "nvlink": False} == before
    assert (True, None, 1, 0, 1.0) == (
        after["cpu"].success,
        after["cpu"].error,
        after["cpu"].series,
        after["cpu"].stuck_seconds,
        after["cpu"].interval_seconds,
    )
    assert "CPU" in after["cpu"].summary
    assert ("os_error", "") == (after["bad"].error, after["bad"].summary)
    assert (5.0, 10) == (after["nvlink"].stuck_seconds, after["nvlink"].interval_seconds)
