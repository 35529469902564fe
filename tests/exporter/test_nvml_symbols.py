"""NVML libraries and bindings that lack a function: each costs its own values and nothing else.

What a driver's library exports grows with every branch: R470 has no GPM, no memory info v2 and no
running processes v3, R515 no clock event reasons, R535 no temperature by sensor.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pynvml
import pytest

from fake_nvml import FakeNvml, install
from hardware_cases import scenario_of
from peerwatch_demo.simulated_node.nvml_registry import FUNCTIONS
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.settings.load import load_config
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.gpu.nvml import Nvml
from peerwatch_exporter.sources.gpu.nvml_access import GpuLostError, NvmlError, share_nvml
from peerwatch_exporter.sources.gpu.nvml_facts import FactsReader
from peerwatch_exporter.sources.host.access import Paths

REGISTERED = registrations()
DRIVER = [item for item in REGISTERED.values() if item.process == "driver"]
CONFIG = load_config(None, listen=None, known_collectors=REGISTERED)
# Without these no GPU can be found at all.
ESSENTIAL = {"nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2"}
# What a function gives alone. Those that are not here have a substitute or give a label.
OWN = {
    "nvmlDeviceGetClockInfo": {"gpu_clock_hertz"},
    "nvmlDeviceGetCurrPcieLinkGeneration": {"gpu_pcie_link_generation"},
    "nvmlDeviceGetCurrPcieLinkWidth": {"gpu_pcie_link_width_lanes"},
    "nvmlDeviceGetEnforcedPowerLimit": {"gpu_power_limit_watts"},
    "nvmlDeviceGetMaxClockInfo": {"gpu_clock_max_hertz"},
    "nvmlDeviceGetMaxPcieLinkGeneration": {"gpu_pcie_link_generation_max"},
    "nvmlDeviceGetMaxPcieLinkWidth": {"gpu_pcie_link_width_lanes_max"},
    "nvmlDeviceGetMemoryInfo_v2": {"gpu_memory_reserved_bytes"},
    "nvmlDeviceGetPerformanceState": {"gpu_performance_state"},
    "nvmlDeviceGetRepairStatus": {"gpu_repair_pending"},
    "nvmlDeviceGetRowRemapperHistogram": {"gpu_row_remap_banks"},
    "nvmlDeviceGetSramEccErrorStatus": {"gpu_sram_ecc_threshold_exceeded"},
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": {"gpu_unrepairable_memory"},
    "nvmlDeviceGetUtilizationRates": {"gpu_utilization_ratio", "gpu_memory_utilization_ratio"},
}


class Node:
    """Two GPUs of a library that lacks functions, read by every collector that calls NVML."""

    def __init__(self, *missing, gpus=2):
        both = scenario_of("h100_node")
        self.scenario = {**both, "gpus": both["gpus"][:gpus], "missing_functions": list(missing)}
        self.fake = FakeNvml(self.scenario)
        self.now = 1e9
        self.errors = {}

    def read(self):
        """Return the metrics of two rounds, by (name, values of the labels but the uuid)."""
        with install(self.fake):
            self.sources = Sources(
                Paths(Path("/nowhere"), Path("/nowhere"), Path("/nowhere")),
                clock=lambda: self.now,
                monotonic=lambda: self.now,
            )
            self.nvml = Nvml()
            share_nvml(self.sources, self.nvml)
            collectors = {item.name: item.factory(CONFIG, self.sources) for item in DRIVER}
            facts = FactsReader(self.nvml, self.sources, self.sources.gpus)
            for _ in range(2):
                self.now += 1
                found = {}
                for name, collector in collectors.items():
                    found |= self._collect(name, collector)
                self.facts = facts.read()
                self.now += 5
            return found

    def _collect(self, name, collector):
        found = {}
        try:
            for item in collector.collect():
                labels = item.spec.labels
                for values, value in item.rows:
                    kept = zip(labels, values, strict=True)
                    key = tuple(value for label, value in kept if label != "uuid")
                    found[item.spec.name, *key] = value
        except NoData:
            pass
        except PartialData as partial:
            self.errors[name] = partial.error_class
        return found


def names(found):
    return {key[0] for key in found}


@pytest.fixture(scope="module")
def healthy():
    return Node().read()


@pytest.mark.parametrize("function", sorted(FUNCTIONS.keys() - ESSENTIAL))
def test_missing_function_costs_its_own_values_alone(function, healthy):
    node = Node(function)
    found = node.read()

    assert {("gpu_present", "0"): 1, ("gpu_present", "1"): 1, ("gpus_visible",): 2}.items() <= (
        found.items()
    )
    assert {("gpu_lost", "0"): 0, ("gpu_lost", "1"): 0}.items() <= found.items()
    assert not node.errors
    # A function that is not there is no failed call. Without fields the links are counted by asking
    # for one too many.
    expected = {"invalid_argument"} if function == "nvmlDeviceGetFieldValues" else set()
    assert expected == node.nvml.error_counts().keys()
    lost = names(healthy) - names(found)
    if function in OWN:
        assert OWN[function] == lost
    elif function == "nvmlDeviceGetFieldValues":
        assert "gpu_energy_joules_total" in lost
    elif function.startswith("nvmlGpm"):
        assert all("_active_" in name or "gpm" in name or "occupancy" in name for name in lost)
    else:
        assert not lost


def test_board_without_uuid_keeps_every_value(healthy):
    found = Node("nvmlDeviceGetUUID").read()
    assert {key for key in healthy if key[0] != "gpu_info"} <= found.keys()
    assert 2 == sum(key[0] == "gpu_info" for key in found)


def test_processes_are_read_in_the_way_of_an_older_driver():
    node = Node("nvmlDeviceGetComputeRunningProcesses_v3")
    node.scenario["gpus"][0]["processes"] = [[4711, 1 << 30]]
    node.read()
    assert (4711,) == node.sources.gpus.processes()[0]


def test_library_that_does_not_count_is_an_error_and_no_node_without_gpus():
    with (
        install(Node("nvmlDeviceGetCount_v2").fake),
        pytest.raises(NvmlError, match="how many GPUs there are: function_not_found"),
    ):
        Nvml().gpus()


@pytest.mark.parametrize(
    ("code", "reason"),
    [(pynvml.NVML_ERROR_NO_PERMISSION, "no_permission"), (None, "function_not_found")],
)
def test_gpu_that_may_not_be_opened_is_unreadable_and_not_gone(code, reason):
    node = Node(*(["nvmlDeviceGetHandleByIndex_v2"] if code is None else []))
    for gpu in node.scenario["gpus"]:
        gpu["errors"] = {"nvmlDeviceGetHandleByIndex_v2": code}
    found = node.read()

    assert {("gpu_unreadable", str(index), reason): 1 for index in (0, 1)}.items() <= found.items()
    assert not {"gpu_present", "gpu_lost", "gpus_visible"} & names(found)
    assert {"gpu": "gpu_unreadable"} == node.errors


@pytest.mark.parametrize(
    "code", [pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_IRQ_ISSUE, pynvml.NVML_ERROR_GPU_IS_LOST]
)
def test_gpu_that_does_not_answer_when_opened_is_lost(code):
    node = Node()
    node.scenario["gpus"][1]["errors"] = {"nvmlDeviceGetHandleByIndex_v2": code}
    found = node.read()

    assert 1 == found["gpus_visible",]
    assert 0 == found["gpu_present", "1"]
    assert 1 == found["gpu_lost", "1"]


def test_loss_of_a_gpu_is_logged_once(caplog):
    node = Node()
    with install(node.fake):
        nvml = Nvml()
        nvml.gpus()
        node.scenario["gpus"][1]["lost"] = True
        for _ in range(3):
            for gpu in nvml.gpus():
                with contextlib.suppress(GpuLostError):
                    gpu.read()

    (line,) = [record.getMessage() for record in caplog.records if "lost" in record.getMessage()]
    assert "gpu=1" in line
    assert "pci_bus_id=0000:" in line


@pytest.mark.parametrize(
    "error",
    [
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        AttributeError("module 'pynvml' has no attribute 'c_new_t'"),
        TypeError("an integer is required"),
        OSError("undefined symbol"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_fault_of_the_binding_costs_one_value_and_is_counted(monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(pynvml, "nvmlDeviceGetUtilizationRates", fail)
    node = Node()
    found = node.read()

    assert 2 == found["gpus_visible",]
    assert "gpu_utilization_ratio" not in names(found)
    assert "gpu_power_watts" in names(found)
    (code,) = node.nvml.error_counts()
    assert code.startswith("binding_")


@pytest.mark.parametrize("wrapper", ["nvmlDeviceGetTemperatureV", "nvmlDeviceGetMarginTemperature"])
def test_older_binding_without_a_wrapper_costs_its_value(monkeypatch, wrapper):
    monkeypatch.delattr(pynvml, wrapper)
    found = Node().read()
    assert 2 == found["gpus_visible",]
    assert ("gpu_temperature_celsius", "0", "core") in found


def test_unreadable_gpu_says_so_when_it_is_called():
    node = Node("nvmlDeviceGetHandleByIndex_v2", gpus=1)
    with install(node.fake):
        (gpu,) = Nvml().gpus()
        with pytest.raises(GpuLostError, match="GPU 0: function_not_found"):
            gpu.read()
