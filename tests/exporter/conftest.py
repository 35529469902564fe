"""Fixture cases: a directory with a node's files, rendered by the real exporter."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from prometheus_client import CollectorRegistry, generate_latest

from fake_ethtool import FileEthtool
from fake_nvml import install
from hardware_cases import FIXTURES, FakeClock, scenario_of
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.config import load_config
from peerwatch_exporter.runner import Runner, enabled_collectors
from peerwatch_exporter.sources import Paths, Sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# How long an example takes is the machine's business, and it may be a busy one.
settings.register_profile("no_deadline", deadline=None)
settings.load_profile("no_deadline")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write expected.prom anew from what is rendered",
    )


def runner_of(case: str, monotonic: FakeClock | None = None) -> Runner:
    """Return all collectors of a fixture case, with settings from its config.yaml if it has one."""
    root = FIXTURES / case
    settings = root / "config.yaml"
    registered = registrations()
    config = load_config(
        settings if settings.exists() else None, listen=None, known_collectors=registered
    )
    directories = {
        "heartbeat": config.heartbeat.model_copy(update={"directory": root / "heartbeat"}),
        "jobs": config.jobs.model_copy(
            update={"mapping_directory": root / "jobs" if (root / "jobs").exists() else None}
        ),
    }
    config = config.model_copy(update=directories)
    paths = Paths(procfs=root / "proc", sysfs=root / "sys", kmsg=root / "kmsg")
    sources = Sources(
        paths,
        clock=FakeClock(),
        monotonic=monotonic or FakeClock(),
        ethtool=FileEthtool(root / "ethtool.json"),
    )
    # A long deadline: a slow machine must not change the page.
    return Runner(
        enabled_collectors(config, sources, registered),
        sources,
        deadline_seconds=30,
        version="0.0.0",
    )


@contextlib.contextmanager
def hardware_of(case: str) -> Iterator[None]:
    """Put the case's GPUs behind pynvml."""
    with install(scenario_of(case)):
        yield


@pytest.fixture
def render() -> Callable[[str], str]:
    """Return the page of a fixture case, as the second scrape of a node that stands still.

    Activity is the mean since the scrape before, so the first one has none.
    """

    def page(case: str) -> str:
        registry = CollectorRegistry()
        monotonic = FakeClock()
        with hardware_of(case):
            runner = runner_of(case, monotonic)
            registry.register(runner)
            runner.collect()
            monotonic.now += 1
            text = generate_latest(registry).decode()
        # Failures name the file, and that lies elsewhere on every machine.
        assert str(FIXTURES) not in text
        return text

    return page
