"""The clock collector, and the kernel's own answer."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from hardware_cases import collected
from peerwatch_exporter.collectors.clock import ClockCollector
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.settings.config import ExporterConfig, ScopeConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths
from peerwatch_exporter.sources.host.clock_state import ClockState, kernel_clock
from peerwatch_exporter.sources.host.queries import HostQueries

NOWHERE = Paths(*[Path("nowhere")] * 3)


def collector(ask, config=None) -> ClockCollector:
    sources = Sources(NOWHERE, queries=HostQueries(clock=ask))
    return ClockCollector(config or ExporterConfig(), sources)


def test_the_state_is_published_as_it_is():
    assert {
        ("host_clock_synchronized",): 0,
        ("host_clock_offset_seconds",): -0.25,
        ("host_clock_error_max_seconds",): 16.0,
    } == collected(collector(lambda: ClockState(False, -0.25, 16.0)))


def test_the_kernel_answers_without_a_privilege():
    state = kernel_clock()

    # The kernel says 16 s where nobody knows, and never a negative number.
    assert 0 <= state.max_error_seconds
    assert abs(state.offset_seconds) < 1
    assert isinstance(state.is_synchronized, bool)


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS])
def test_a_sandbox_that_forbids_the_call_is_no_failure(code):
    def refused():
        raise OSError(code, "refused")

    with pytest.raises(NoData, match="cannot be asked here"):
        collected(collector(refused))


def test_another_error_is_a_failure():
    def broken():
        raise OSError(errno.EFAULT, "broken")

    with pytest.raises(OSError, match="broken"):
        collected(collector(broken))


def test_the_clock_of_a_shared_machine_is_nobody_s():
    config = ExporterConfig(scope=ScopeConfig(kind="processes", environment={"A": "b"}))

    with pytest.raises(NoData):
        collected(collector(kernel_clock, config))
    with pytest.raises(NoData):
        collected(collector(None))
