"""The NVML source: one initialisation, every error dealt with where it happens."""

from __future__ import annotations

import json
import os
import time

import pynvml
import pytest

from fake_nvml import FakeNvml, install
from hardware_cases import scenario_of
from peerwatch_demo.simulated_node.nvml_registry import FUNCTIONS
from peerwatch_exporter.driver.progress_marker import ProgressMarker
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.sources.gpu.nvml import Nvml
from peerwatch_exporter.sources.gpu.nvml_access import DriverReloadedError, GpuLostError, NvmlError


def scenario(**changes):
    """Return one healthy GPU with the given changes."""
    gpu = scenario_of("h100_node")["gpus"][0]
    return {"driver_version": "570.124.06", "gpus": [{**gpu, **changes}]}


def test_library_is_initialised_once_for_many_collections():
    with install(scenario()) as fake:
        nvml = Nvml()
        for _ in range(3):
            nvml.gpus()

    assert 1 == fake.calls["nvmlInitWithFlags"]
    assert 1 == fake.calls["nvmlDeviceGetUUID"]


def test_units_are_base_units():
    with install(scenario()):
        (gpu,) = Nvml().gpus()
        reading, state = gpu.read(), gpu.read_state()

    assert 612.345 == reading.power_watts
    assert 700.0 == state.power_limit_watts
    assert 918273645.0 == reading.energy_joules
    assert 1.98e9 == reading.sm_clock_hertz
    assert 1.98e9 == state.graphics_clock_hertz
    assert 2.619e9 == state.memory_clock_hertz
    assert 123.456789 == state.throttle_seconds["sw_power_cap"]
    assert 0.97 == reading.utilization_ratio
    assert {"core": 58.0, "memory": 71} == state.temperatures_celsius


def test_energy_is_read_every_5_s_by_gpus_in_turn():
    now = 1000.0
    scenario = three()
    ages = []
    with install(scenario):
        gpus = Nvml(monotonic=lambda: now).gpus()
        for second in range(16):
            # Ticks are a little early or late.
            now = 1000.0 + second + 0.05 * (-1) ** second
            for board in scenario["gpus"]:
                board["fields"]["83"] = 1000 * second
                board["fields"]["186"] = 1000 * second
            readings = [gpu.read() for gpu in gpus]
            assert {float(second)} == {reading.power_watts for reading in readings}
            ages.append([second - reading.energy_joules for reading in readings])

    assert [0, 0, 0] == ages[0]
    every_5 = [*range(5)] * 2
    assert [
        (*range(5), *every_5, 0),
        (*range(4), *every_5, 0, 1),
        (*range(3), *every_5, 0, 1, 2),
    ] == list(zip(*ages, strict=True))


def test_energy_that_was_refused_is_asked_for_again_at_once():
    scenario = three()
    fields = scenario["gpus"][0]["fields"]
    energy = fields.pop("83")
    with install(scenario):
        gpu = Nvml(monotonic=lambda: 1000.0).gpus()[0]
        assert gpu.read().energy_joules is None
        fields["83"] = energy
        assert energy / 1000 == gpu.read().energy_joules


@pytest.mark.parametrize(
    ("kind", "member", "value"),
    [
        (pynvml.NVML_VALUE_TYPE_DOUBLE, "dVal", 0.25),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, "uiVal", 2**32 - 1),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG, "ulVal", 2**64 - 1),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "ullVal", 2**64 - 1),
        (pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG, "sllVal", -(2**63)),
        (pynvml.NVML_VALUE_TYPE_SIGNED_INT, "siVal", -5),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT, "usVal", 65535),
        (99, "ullVal", 7),
    ],
)
def test_field_of_every_kind_is_read_as_nvml_lays_it_out(monkeypatch, kind, member, value):
    def answer(_fake, _handle, count, reference):
        fields = (pynvml.c_nvmlFieldValue_t * count.value).from_buffer(reference._obj)
        for field in fields:
            field.valueType = kind
            field.timestamp = field.latencyUsec = -1
            setattr(field.value, member, value)
        fields[1].nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
        return pynvml.NVML_SUCCESS

    monkeypatch.setitem(FUNCTIONS, "nvmlDeviceGetFieldValues", answer)
    with install(scenario()):
        (gpu,) = Nvml().gpus()
        assert {(83, 0): value, (138, 5): value} == gpu.fields([(83, 0), (84, 1), (138, 5)])


def test_missing_library_is_no_data():
    with install(None), pytest.raises(NoData, match=r"libnvidia-ml\.so\.1: cannot open"):
        Nvml().gpus()


def test_driver_that_is_not_loaded_is_no_data():
    absent = {**scenario(), "init_error": pynvml.NVML_ERROR_DRIVER_NOT_LOADED}
    with install(absent), pytest.raises(NoData, match="Driver Not Loaded"):
        Nvml().gpus()


def test_pci_address_is_the_kernels():
    with install(scenario()):
        nvml = Nvml()

        assert ["0000:19:00.0"] == [gpu.identity.pci_bus_id for gpu in nvml.gpus()]
        assert "570.124.06" == nvml.driver_version


def test_library_that_fails_otherwise_is_an_error_and_counted():
    mismatch = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    with install({**scenario(), "init_error": mismatch}):
        nvml = Nvml()
        with pytest.raises(NvmlError, match="version mismatch"):
            nvml.gpus()

    assert {"lib_rm_version_mismatch": 1} == nvml.error_counts()


def test_reloaded_driver_needs_a_new_process():
    with install(scenario()) as fake:
        nvml = Nvml()
        (gpu,) = nvml.gpus()
        fake.initialised = False

        with pytest.raises(DriverReloadedError, match=r"'570\.124\.06' is gone: uninitialized"):
            gpu.read()
        with pytest.raises(DriverReloadedError):
            nvml.gpus()
    assert {"uninitialized": 2} == nvml.error_counts()


def three():
    """Return three GPUs."""
    both = scenario_of("h100_node")
    return {**both, "gpus": both["gpus"][:3]}


class TouchedNvml(FakeNvml):
    """Remembers which GPUs it was asked about."""

    def __init__(self, scenario):
        super().__init__(scenario)
        self.touched = set()

    def gpu(self, index, function):
        self.touched.add(index)
        return super().gpu(index, function)


@pytest.mark.parametrize(
    ("choice", "touched"),
    [({"excluded": {1}}, {0, 2}), ({"only": 1}, {1}), ({"only": 7}, set()), ({}, {0, 1, 2})],
    ids=["excluded", "only", "not_there", "all"],
)
def test_gpus_that_must_not_be_touched_are_not(choice, touched):
    with install(TouchedNvml(three())) as fake:
        nvml = Nvml(**choice)
        for gpu in nvml.gpus():
            gpu.read()

    assert touched == fake.touched
    assert 3 == nvml.count


def test_exclusion_may_end():
    with install(TouchedNvml(three())):
        nvml = Nvml(excluded={0, 1})
        (kept,) = nvml.gpus()
        nvml.exclude({1})

        assert [0, 2] == [gpu.identity.index for gpu in nvml.gpus()]
        assert kept is nvml.gpus()[1]


class MarkedNvml(FakeNvml):
    """Looks at the mark whenever it is asked about a GPU."""

    def __init__(self, scenario, memory):
        super().__init__(scenario)
        self.memory = memory
        self.seen = []

    def gpu(self, index, function):
        self.seen.append((index, self.memory[1] - 1))
        return super().gpu(index, function)


def test_every_call_says_first_which_gpu_it_is_for():
    memory = bytearray(3)
    with install(MarkedNvml(three(), memory)) as fake:
        nvml = Nvml(ProgressMarker(memory))
        for gpu in nvml.gpus():
            gpu.read()
            gpu.fields([(83, 0)])
            nvml.gpus()
            assert 0 < memory[2]

    assert {0, 1, 2} == {index for index, _ in fake.seen}
    assert all(index == marked for index, marked in fake.seen)


def test_no_gpu_at_all_is_no_data():
    with install({"driver_version": "570.124.06", "gpus": []}), pytest.raises(NoData):
        Nvml().gpus()


@pytest.mark.parametrize(
    "code",
    [
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_UNKNOWN,
        pynvml.NVML_ERROR_TIMEOUT,
    ],
    ids=["not_supported", "no_permission", "unknown", "timeout"],
)
def test_failing_function_costs_only_its_own_values(code):
    with install(scenario(errors={"nvmlDeviceGetUtilizationRates": code})):
        (gpu,) = Nvml().gpus()
        reading = gpu.read()

    assert reading.utilization_ratio is None
    assert 612.345 == reading.power_watts


def test_only_lacking_values_are_not_counted_as_errors():
    errors = {
        "nvmlDeviceGetUtilizationRates": pynvml.NVML_ERROR_NOT_SUPPORTED,
        "nvmlDeviceGetPerformanceState": pynvml.NVML_ERROR_NO_PERMISSION,
        "nvmlDeviceGetEnforcedPowerLimit": pynvml.NVML_ERROR_UNKNOWN,
    }
    with install(scenario(errors=errors)):
        nvml = Nvml()
        for gpu in nvml.gpus() * 2:
            gpu.read()
            gpu.read_state()

    assert {"no_permission": 2, "unknown": 2} == nvml.error_counts()


def test_old_driver_falls_back_to_older_functions():
    old = {
        **scenario(fields={"82": 70, "83": 1000}),
        "missing_functions": [
            "nvmlDeviceGetMemoryInfo_v2",
            "nvmlDeviceGetTemperatureV",
            "nvmlDeviceGetCurrentClocksEventReasons",
        ],
    }
    with install(old):
        (gpu,) = Nvml().gpus()
        reading, state = gpu.read(), gpu.read_state()

    # The first memory call counts the reserved part in, and the power is the one second mean.
    assert 70866960384 + 546766848 == reading.memory_used_bytes
    assert reading.memory_reserved_bytes is None
    assert 58.0 == state.temperatures_celsius["core"]
    assert 610.845 == reading.power_watts
    assert state.clock_events["idle"] is False


def test_lost_gpu_raises_for_itself_alone():
    both = scenario_of("h100_node")
    both["gpus"] = both["gpus"][:2]
    with install(both) as fake:
        nvml = Nvml()
        first, second = nvml.gpus()
        fake.scenario["gpus"][0]["lost"] = True

        with pytest.raises(GpuLostError, match="GPU 0"):
            first.read()
        assert 616.666 == second.read().power_watts
        assert [False, True] == [gpu.answers for gpu in nvml.gpus()]
        assert ("0", both["gpus"][0]["uuid"]) == nvml.gpus()[0].labels


def test_loss_that_only_the_field_values_show_is_a_loss():
    with install(scenario(fields={"186": "lost"})):
        (gpu,) = Nvml().gpus()
        with pytest.raises(GpuLostError):
            gpu.read()


def test_lost_gpu_that_comes_back_answers_again_and_was_counted_once():
    with install(scenario()) as fake:
        nvml = Nvml()
        fake.scenario["gpus"][0]["lost"] = True
        for _ in range(3):
            with pytest.raises(GpuLostError):
                nvml.gpus()[0].read()
        fake.scenario["gpus"][0]["lost"] = False

        assert 612.345 == nvml.gpus()[0].read().power_watts
        assert {"gpu_is_lost": 1} == nvml.error_counts()


def test_gpu_that_is_no_longer_listed_stays_among_the_seen():
    both = scenario_of("h100_node")
    both["gpus"] = both["gpus"][:2]
    with install(both) as fake:
        nvml = Nvml()
        nvml.gpus()
        fake.scenario["gpus"].pop(0)

        assert [("0", both["gpus"][0]["uuid"])] == [gpu.labels for gpu in nvml.gpus()]
        assert 2 == len(nvml.seen())


def test_gpu_that_answers_is_the_same_object_until_others_may_be_touched():
    with install(scenario_of("h100_node")):
        nvml = Nvml()
        first = nvml.gpus()
        assert first is nvml.gpus()
        nvml.exclude({0})
        assert first[1:] == nvml.gpus()


def test_many_fields_are_asked_in_several_calls():
    with install(scenario(fields={"161": list(range(300))})) as fake:
        (gpu,) = Nvml().gpus()
        values = gpu.fields([(161, link) for link in range(300)])

    assert {(161, link): link for link in range(300)} == values
    assert 3 == fake.calls["nvmlDeviceGetFieldValues"]


def test_fake_delays_the_named_function():
    with install(scenario(delays={"nvmlDeviceGetUtilizationRates": 0.02})):
        (gpu,) = Nvml().gpus()
        gpu.fields([(83, 0)])
        start = time.monotonic()
        gpu.read()

        assert time.monotonic() - start >= 0.02


def test_fake_leaves_pynvml_as_it_was():
    before = (pynvml.nvmlLib, dict(pynvml._nvmlGetFunctionPointer_cache), pynvml.CDLL)
    with install(scenario()):
        Nvml().gpus()

    assert before == (pynvml.nvmlLib, dict(pynvml._nvmlGetFunctionPointer_cache), pynvml.CDLL)


def test_fake_follows_a_file_that_is_replaced(tmp_path):
    path = tmp_path / "nvml.json"
    path.write_text(json.dumps(scenario(utilization=10)))
    with install(FakeNvml.from_file(path)):
        nvml = Nvml()
        assert 0.1 == nvml.gpus()[0].read().utilization_ratio

        new = tmp_path / "new.json"
        new.write_text(json.dumps(scenario(utilization=90)))
        new.replace(path)
        assert 0.9 == nvml.gpus()[0].read().utilization_ratio


def test_fake_does_not_read_an_unchanged_file_again(tmp_path):
    path = tmp_path / "nvml.json"
    path.write_text(json.dumps(scenario()))
    fake = FakeNvml.from_file(path)
    assert not fake.reload(path)

    os.utime(path, ns=(1, 1))
    assert fake.reload(path)
