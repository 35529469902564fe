"""The dcgm collector: real processes, with bindings shaped like DCGM's and answers from a file."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from peerwatch_exporter.collector import registrations
from peerwatch_exporter.collectors.dcgm import DcgmCollector
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.dcgm.process import DcgmProcess
from peerwatch_exporter.sources.dcgm.session import DcgmSessionError
from peerwatch_exporter.sources.gpu.identity import GpuIdentity
from peerwatch_exporter.sources.host.access import Paths

BINDINGS = Path(__file__).parent / "fake_dcgm"
PATIENCE = 300.0
# DCGM counts GPUs in an order of its own.
ENGINE = {
    "gpus": {"0": "GPU-b", "1": "GPU-a"},
    "values": {
        "0": {"1001": 0.9, "1002": 0.8, "1003": 0.4, "1004": 0.7, "1005": 0.6},
        "1": {"1004": 1.02, "1006": 0.0, "1016": 0.25, "1009": 2e9, "1010": 1e9, "1002": None},
    },
}
EXPECTED = {
    ("exporter_source_supported", "dcgm", "0"): 1,
    ("exporter_source_supported", "dcgm", "1"): 1,
    ("gpu_graphics_active_ratio", "1", "GPU-b"): 0.9,
    ("gpu_sm_active_ratio", "1", "GPU-b"): 0.8,
    ("gpu_sm_occupancy_ratio", "1", "GPU-b"): 0.4,
    ("gpu_tensor_active_ratio", "1", "GPU-b"): 0.7,
    ("gpu_dram_active_ratio", "1", "GPU-b"): 0.6,
    ("gpu_tensor_active_ratio", "0", "GPU-a"): 1.0,
    ("gpu_pipe_active_ratio", "0", "GPU-a", "fp64"): 0.0,
    ("gpu_pipe_active_ratio", "0", "GPU-a", "int"): 0.25,
    ("gpu_pcie_transmit_bytes_per_second", "0", "GPU-a"): 2e9,
    ("gpu_pcie_receive_bytes_per_second", "0", "GPU-a"): 1e9,
}


class Node:
    """A collector whose engine answers from a file."""

    def __init__(self, root, monkeypatch):
        self.path = root / "dcgm.json"
        self.write()
        monkeypatch.setenv("FAKE_DCGM", str(self.path))
        self.sources = Sources(Paths(root, root, root / "kmsg"))
        registrations()

    def write(self, **changes):
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(ENGINE | changes))
        new.replace(self.path)

    def collector(self, bindings=BINDINGS, boards=("GPU-a", "GPU-b")):
        self.sources.gpus.update_boards(
            [GpuIdentity(index, uuid) for index, uuid in enumerate(boards)]
        )
        config = {"dcgm": {"enabled": True, "bindings": bindings}}
        return DcgmCollector(ExporterConfig.model_validate(config), self.sources)


@pytest.fixture
def node(tmp_path, monkeypatch):
    return Node(tmp_path, monkeypatch)


def until(holds):
    """Return what a function returns once that is something."""
    end = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def values(collector):
    """Return the samples by name and labels; none while there is nothing to say."""
    try:
        return {(f.spec.name, *row): value for f in collector.collect() for row, value in f.rows}
    except NoData:
        return {}


def error_of(collector):
    """Return the class of what the collector raises, or None."""
    try:
        values(collector)
    except DcgmSessionError as error:
        return error.error_class
    return None


def test_values_have_the_names_of_gpm_and_the_drivers_indexes(node):
    collector = node.collector()
    try:
        assert EXPECTED == until(lambda: values(collector))
        # What other values there are from now on is said, too.
        node.write(values={"0": {"1004": 0.1}, "1": {}})
        tensor = ("gpu_tensor_active_ratio", "1", "GPU-b")
        found = until(lambda: (now := values(collector)).get(tensor) == 0.1 and now)
        assert 0 == found["exporter_source_supported", "dcgm", "0"]
    finally:
        collector.close()


@pytest.mark.parametrize("refused", [[1016], [1016, 1006, 1009]])
def test_fields_that_dcgm_refuses_cost_no_others(node, refused):
    node.write(refused=refused)
    collector = node.collector()
    try:
        found = until(lambda: values(collector))
    finally:
        collector.close()
    assert 0.7 == found["gpu_tensor_active_ratio", "1", "GPU-b"]
    assert ("gpu_pipe_active_ratio", "0", "GPU-a", "int") not in found


@pytest.mark.parametrize(
    ("engine", "word"),
    [
        ({"connect_error": -21}, "dcgm_not_reachable"),
        ({"connect_error": -25}, "dcgm_library_not_found"),
        ({"watch_error": -36}, "dcgm_profiling_not_supported"),
        ({"read_error": -34}, "dcgm_profiling_in_use"),
        ({"watch_error": -999}, "dcgm_error"),
        ({"values": 7}, "dcgm_error"),
        ({"crash": True}, "dcgm_ended"),
    ],
)
def test_what_is_wrong_is_said_and_ends_when_it_is_right_again(node, engine, word):
    node.write(**engine)
    collector = node.collector()
    try:
        until(lambda: error_of(collector) == word)
        node.write()
        # The process starts again after a second or two.
        until(lambda: error_of(collector) is None and values(collector))
    finally:
        collector.close()


def test_missing_bindings_are_said_with_what_to_do(node, tmp_path):
    collector = node.collector(bindings=tmp_path)
    try:
        until(lambda: error_of(collector) == "dcgm_bindings_not_found")
        with pytest.raises(DcgmSessionError, match=r"datacenter-gpu-manager-4-core.*dcgm\.enabled"):
            values(collector)
    finally:
        collector.close()


def test_blank_and_old_values_are_left_out(node):
    node.write(age=60)
    collector = node.collector()
    try:
        found = until(lambda: values(collector))
    finally:
        collector.close()
    assert {0} == set(found.values())


def test_engine_that_hangs_costs_its_own_process(node):
    node.write(hang=True)
    process = DcgmProcess("localhost:5555", BINDINGS, node.sources, silence_seconds=1.0)
    process.start()
    try:
        problem = until(lambda: process.read().problem)
        assert "dcgm_hung" == problem.error_class
    finally:
        process.stop()
    assert {"main"} == {
        use.process for use in node.sources.own_processes.use() if use.resident_bytes
    }


def test_babble_is_a_bad_answer(node):
    command = [sys.executable, "-c", "print('[1')"]
    process = DcgmProcess("localhost:5555", None, node.sources, command=command)
    process.start()
    try:
        assert "dcgm_bad_answer" == until(lambda: process.read().problem).error_class
    finally:
        process.stop()


def test_node_without_gpus_starts_no_process(node):
    collector = node.collector(boards=())
    with pytest.raises(NoData):
        list(collector.collect())
    assert {"main"} == {use.process for use in node.sources.own_processes.use()}
    collector.close()


@pytest.mark.parametrize(
    ("address", "is_right"),
    [
        ("localhost:5555", True),
        ("[::1]:5555", True),
        ("/run/nv-hostengine.sock", True),
        ("localhost", False),
        ("localhost:0", False),
        ("localhost:70000", False),
        ("tcp://localhost:5555", False),
    ],
)
def test_address_is_a_port_or_a_socket(address, is_right):
    config = {"dcgm": {"address": address}}
    if is_right:
        assert address == ExporterConfig.model_validate(config).dcgm.address
    else:
        with pytest.raises(ValueError, match="neither a host with a port"):
            ExporterConfig.model_validate(config)
