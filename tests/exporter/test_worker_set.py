"""Which collectors run, and workers that follow other settings: what stays, what is made anew."""

from __future__ import annotations

import pytest

from fake_collectors import Returning, Scripted, sources_at, wait_until
from hardware_cases import FakeClock
from peerwatch_exporter.collector import Registration
from peerwatch_exporter.schedule.runner import Runner
from peerwatch_exporter.schedule.worker_set import WorkerSet, enabled_collectors, make_workers
from peerwatch_exporter.settings.config import CollectorsConfig, ExporterConfig


def samples(families):
    return {(item.spec.name, *labels): value for item in families for labels, value in item.rows}


class Listed(Returning):
    """Publishes how many interfaces the settings name, and is made anew for others."""

    def __init__(self, config):
        super().__init__(value=len(config.ethtool.interfaces))


class Following(Returning):
    """Counts its own runs over every change of the settings."""

    def __init__(self, config):
        super().__init__("host_load1")
        self.seconds = config.heartbeat.forget_after_seconds
        self.changes = 0

    def follow(self, config):
        self.seconds = config.heartbeat.forget_after_seconds
        self.changes += 1

    def collect(self):
        self.value = self.runs + 1
        return super().collect()


@pytest.fixture
def made():
    """Return the collectors that are made, by name, in the order they come."""
    return {"listed": [], "following": [], "plain": []}


@pytest.fixture
def registered(made):
    def registration(name, make, place="main"):
        def factory(config, sources):
            made[name].append(make(config))
            return made[name][-1]

        return Registration(name, name, True, 1.0, place, factory)

    return {
        item.name: item
        for item in (
            registration("listed", Listed),
            registration("following", Following),
            registration("plain", lambda _: Returning("host_processes")),
            registration("gpu", Listed, "driver"),
        )
    }


def settings(**sections):
    names = sections.pop("enabled", ["listed", "following", "plain"])
    return ExporterConfig.model_validate({"collectors": {"enabled": names}, **sections})


def running(tmp_path, workers):
    clock = FakeClock()
    sources = sources_at(tmp_path, clock)
    limits = {"deadline_seconds": 60, "max_series": 100, "history_seconds": 0, "mean_seconds": 1}
    return clock, Runner(workers, sources, version="1", **limits), limits


def test_only_what_a_setting_concerns_changes_and_the_rest_goes_on(tmp_path, made, registered):
    workers = WorkerSet(settings(), sources_at(tmp_path, FakeClock()), registered, None)
    clock, runner, limits = running(tmp_path, workers.workers)
    runner.tick()
    config = settings(ethtool={"interfaces": ["a", "b"]}, heartbeat={"forget_after_seconds": 99})

    late = workers.follow(config, ["ethtool.interfaces", "heartbeat.forget_after_seconds"])
    runner.follow(workers.workers, **limits)
    clock.now += 1
    exposition = samples(runner.tick().families)
    runner.stop()

    assert [] == late
    assert (2.0, 2.0) == (exposition["host_cpus",], exposition["host_load1",])
    assert {"listed": 2, "following": 1, "plain": 1} == {k: len(v) for k, v in made.items()}
    assert (99, 1) == (made["following"][0].seconds, made["following"][0].changes)


def test_collectors_come_and_go_and_those_of_the_driver_wait(tmp_path, made, registered):
    first = settings(enabled=["listed", "plain"])
    workers = WorkerSet(first, sources_at(tmp_path, FakeClock()), registered, None)
    clock, runner, limits = running(tmp_path, workers.workers)
    runner.tick()
    gone = next(worker for worker in workers.workers if worker.name == "plain")

    late = workers.follow(settings(enabled=["listed", "following", "gpu"]), ["collectors.enabled"])
    runner.follow(workers.workers, **limits)
    clock.now += 1
    exposition = samples(runner.tick().families)

    assert ["gpu"] == late
    assert ["following", "listed"] == runner.names
    assert ("host_processes",) not in exposition
    assert ("exporter_collector_success", "plain") not in exposition
    runs = made["plain"][0].runs
    gone.request()
    clock.now += 1
    runner.tick()
    runner.stop()
    wait_until(lambda: made["plain"][0].runs == runs)


def registration(name, place="main", interval_seconds=1.0, default_enabled=True):
    def factory(config, sources):
        return Returning()

    return Registration(name, name, default_enabled, interval_seconds, place, factory)


REGISTERED = {
    item.name: item
    for item in (
        registration("cpu"),
        registration("disk", interval_seconds=10),
        registration("gpu", "driver"),
        registration("sampler", default_enabled=False),
    )
}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ("cpu", "disk", "gpu")),
        ({"disabled": ["cpu"]}, ("disk", "gpu")),
        ({"enabled": ["sampler", "gpu"]}, ("gpu", "sampler")),
        ({"enabled": ["sampler", "gpu"], "disabled": ["gpu"]}, ("sampler",)),
    ],
)
def test_settings_say_which_collectors_run(settings, expected):
    config = ExporterConfig(collectors=CollectorsConfig(**settings))
    assert expected == enabled_collectors(config, REGISTERED)


def test_collectors_of_the_driver_run_where_the_driver_says(tmp_path):
    class Elsewhere:
        def workers(self, registrations):
            self.names = [item.name for item in registrations]
            return [Scripted(name, clock=FakeClock()) for name in self.names]

    driver = Elsewhere()
    sources = sources_at(tmp_path, FakeClock())
    workers = make_workers(ExporterConfig(), sources, REGISTERED, driver)
    assert ["gpu"] == driver.names
    assert [("cpu", 1), ("disk", 10), ("gpu", 1)] == sorted(
        (worker.name, worker.interval_seconds) for worker in workers
    )


def test_without_a_driver_process_all_run_in_this_one(tmp_path):
    sources = sources_at(tmp_path, FakeClock())
    workers = make_workers(ExporterConfig(), sources, REGISTERED, None)
    runner = Runner(workers, sources, deadline_seconds=20, version="1")
    exposition = samples(runner.tick().families)
    runner.stop()
    assert [1, 1, 1] == [
        exposition["exporter_collector_success", name] for name in ("cpu", "disk", "gpu")
    ]
    assert 2.0 == exposition["host_cpus",]
