"""The boards of a demonstration agree with themselves, through the genuine pynvml."""

from __future__ import annotations

import contextlib
import errno
from itertools import pairwise

import pynvml
import pytest

from fake_nvml import install
from hardware_cases import NOW, FakeClock
from peerwatch_demo.simulated_node.ethtool import SimulatedEthtool
from peerwatch_demo.simulated_node.nics import Nic
from peerwatch_demo.simulated_node.nvml import SimulatedNvml
from peerwatch_demo.simulated_node.scenarios import SCENARIOS
from peerwatch_exporter.sources.nic.drivers.mlx5 import DRIVER

ONSET = 60.0
POWER, UTILIZATION = pynvml.NVML_TOTAL_POWER_SAMPLES, pynvml.NVML_GPU_UTILIZATION_SAMPLES


@contextlib.contextmanager
def boards(name, at=0.0):
    """Yield the clock and the handles of a demonstration's GPUs."""
    clock = FakeClock(NOW + at)
    with install(SimulatedNvml(SCENARIOS[name], 1, NOW, ONSET, clock=clock)):
        pynvml.nvmlInit()
        yield clock, [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(8)]


def register(handles):
    events = pynvml.nvmlEventSetCreate()
    for handle in handles:
        pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
    return events


def next_xid(events):
    """Return GPU and code of the next event, None if there is none."""
    try:
        event = pynvml.nvmlEventSetWait_v2(events, 0)
    except pynvml.NVMLError_Timeout:
        return None
    return pynvml.nvmlDeviceGetUUID(event.device)[:12], event.eventData


def test_energy_is_the_integral_of_the_power():
    with boards("healthy") as (clock, handles):
        before = pynvml.nvmlDeviceGetTotalEnergyConsumption(handles[3])
        watts = []
        for second in range(1, 61):
            clock.now = NOW + second
            watts.append(pynvml.nvmlDeviceGetPowerUsage(handles[3]) / 1000)
        energy = pynvml.nvmlDeviceGetTotalEnergyConsumption(handles[3]) - before

    assert sum(watts) == pytest.approx(energy / 1000, rel=0.02)
    assert 60 < min(watts) < max(watts) <= 710


def test_sample_buffer_goes_on_where_it_was_read_last():
    with boards("healthy", at=100) as (clock, handles):
        _, first = pynvml.nvmlDeviceGetSamples(handles[0], POWER, 0)
        clock.now += 1
        _, second = pynvml.nvmlDeviceGetSamples(handles[0], POWER, first[-1].timeStamp)
    times = [sample.timeStamp for sample in (*first, *second)]

    assert sorted(set(times)) == times
    assert {20_000} == {after - before for before, after in pairwise(times)}
    assert times[-1] <= clock.now * 1e6
    assert all(50_000 < sample.sampleValue.uiVal < 720_000 for sample in (*first, *second))


def test_samples_of_an_idle_gpu_are_zero():
    with boards("idle", at=200) as (_, handles):
        _, samples = pynvml.nvmlDeviceGetSamples(handles[0], UTILIZATION, 0)

    assert {0} == {sample.sampleValue.uiVal for sample in samples}


def test_event_comes_once_and_not_again_after_a_restart():
    with boards("nvlink_errors", at=50) as (clock, handles):
        events = register(handles)
        early = next_xid(events)
        clock.now = NOW + 70
        found = [next_xid(events), next_xid(events)]
    with boards("nvlink_errors", at=71) as (_, handles):
        again = next_xid(register(handles))

    assert early is None
    assert found == [("GPU-5c0de004", 74), None]
    assert again is None


def test_lost_gpu_costs_only_itself():
    with boards("lost_gpu", at=50) as (clock, handles):
        pynvml.nvmlDeviceGetPowerUsage(handles[5])
        clock.now = NOW + 61
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            pynvml.nvmlDeviceGetPowerUsage(handles[5])

        assert pynvml.nvmlDeviceGetPowerUsage(handles[4]) > 0


def test_job_holds_every_gpu_until_it_ends():
    with boards("idle", at=50) as (clock, handles):
        running = [pynvml.nvmlDeviceGetComputeRunningProcesses(handle) for handle in handles]
        clock.now = NOW + 61
        ended = [pynvml.nvmlDeviceGetComputeRunningProcesses(handle) for handle in handles]

    assert [4100 + index for index in range(8)] == [found[0].pid for found in running]
    assert [[]] * 8 == ended


def test_network_driver_has_every_statistic_that_is_read_of_a_priority_with_pfc():
    statistics = Nic(0, SCENARIOS["healthy"], 1, ONSET).statistics(10.0)
    wanted = DRIVER.expanded()
    elsewhere = {name for name in wanted if "_pause" in name and "prio3" not in name}

    assert set() == set(wanted) - elsewhere - statistics.keys() - {
        "tx_prio3_pause_transition",
        "tx_global_pause_transition",
    }


def test_unknown_interface_is_refused_as_by_the_kernel():
    reader = SimulatedEthtool({}, lambda: 0.0)
    for ask in (reader.names, reader.values):
        with pytest.raises(OSError, match="No such device") as refused:
            ask("eth99")

        assert refused.value.errno == errno.ENODEV
