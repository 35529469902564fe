"""Fixture cases: a directory with a node's files, rendered by the real exporter."""

from __future__ import annotations

import contextlib
import os
import resource
from typing import TYPE_CHECKING

import pytest

from fake_collectors import StandingProcesses
from fake_driver import FakeDriver
from fake_nvml import install
from fixture_cases import FIXTURES, NOW, ethtool_of, library_of, queries_of, root_of
from hardware_cases import FakeClock
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.pages.endpoints import Endpoints
from peerwatch_exporter.schedule.runner import Runner
from peerwatch_exporter.schedule.worker_set import make_workers
from peerwatch_exporter.settings.load import load_config
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write expected.prom anew from what is rendered",
    )


def runner_of(case: str, monotonic: FakeClock | None = None) -> Runner:
    """Return all collectors of a fixture case, with settings from its config.yaml if it has one.

    Those of the driver process run in this one, in turn, on the case's fake library.
    """
    root = root_of(case)
    settings = root / "config.yaml"
    registered = registrations()
    config = load_config(
        settings if settings.exists() else None, listen=None, known_collectors=registered
    )
    heartbeats = root / "heartbeat"
    directories = {
        "heartbeat": config.heartbeat.model_copy(
            update={"directory": heartbeats if heartbeats.exists() else None}
        ),
        "jobs": config.jobs.model_copy(
            update={
                "mapping_directory": root / "jobs" if (root / "jobs").exists() else None,
                # The machine that tests run on may have a kubelet.
                "pod_resources_socket": None,
            }
        ),
    }
    config = config.model_copy(update=directories)
    paths = Paths(
        procfs=root / "proc", sysfs=root / "sys", kmsg=root / "kmsg", checks=root / "checks"
    )
    sources = Sources(
        paths,
        clock=FakeClock(),
        monotonic=monotonic or FakeClock(),
        ethtool=ethtool_of(case),
        own_processes=StandingProcesses(),
        queries=queries_of(case),
    )
    # A long deadline: a slow machine must not change the exposition.
    return Runner(
        make_workers(config, sources, registered, FakeDriver(config, sources)),
        sources,
        deadline_seconds=30,
        version="0.0.0",
    )


@contextlib.contextmanager
def endpoints_of(case: str) -> Iterator[Endpoints]:
    """Yield the endpoints of a fixture case: the second snapshot of a node that stands still.

    Rates and activity are means since the snapshot before, so the first one has none.
    """
    monotonic = FakeClock()
    with install(library_of(case, lambda: monotonic.now == NOW)):
        runner = runner_of(case, monotonic)
        runner.tick()
        monotonic.now += 1
        # All again: in the first tick some read what others had not yet written.
        runner.tick(everybody=True)
        yield Endpoints(runner)
        runner.stop()


@pytest.fixture
def render() -> Callable[[str], str]:
    """Return the full endpoint of a fixture case."""

    def exposition(case: str) -> str:
        with endpoints_of(case) as endpoints:
            text = endpoints.full(openmetrics=False, timeout=0).decode()
        # Failures name the file, and that lies elsewhere on every machine.
        assert str(FIXTURES) not in text
        assert str(root_of(case)) not in text
        return text

    return exposition


@pytest.fixture
def render_fast() -> Callable[[str], str]:
    """Return the fast endpoint of a fixture case."""

    def exposition(case: str) -> str:
        with endpoints_of(case) as endpoints:
            return endpoints.fast(openmetrics=False, scraper=None, timeout=0).decode()

    return exposition


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """Leave no descriptor free that select would take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 4096
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"no more than {hard} open files")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    descriptors = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while descriptors[-1] < 1024:
            descriptors.append(os.dup(descriptors[0]))
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
