"""What a fixture case is made of: its own files, another case's, or a demonstration's.

A case is a directory below ``exporter/fixtures``. With a ``case.json`` it is composed:

    {"base": "h100_node",            files and NVML scenario of another case, then
     "keep_gpus": 2,                 only its first GPUs,
     "driver_version": "...",        its driver, and
     "missing_functions": [...],     what that lacks,
     "every_gpu": {...},             changes of each GPU (a JSON merge patch: null removes),
     "gpus": {"1": {...}}}           changes of single GPUs
    {"demo": "lost_gpu",             the node of a demonstration,
     "onset": 60, "seconds": 120,    so long after its start, and
     "starts_healthy": true}         its boards as they were then for the first snapshot
"""

from __future__ import annotations

import atexit
import copy
import functools
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_ethtool import FileEthtool
from peerwatch_demo.simulated_node.ethtool import SimulatedEthtool
from peerwatch_demo.simulated_node.node import Tree
from peerwatch_demo.simulated_node.node_plan import SLOTS
from peerwatch_demo.simulated_node.nvml import SimulatedNvml
from peerwatch_demo.simulated_node.nvml_library import FakeNvml
from peerwatch_demo.simulated_node.queries import simulated_queries
from peerwatch_demo.simulated_node.scenarios import SCENARIOS
from peerwatch_exporter.sources.host.clock_state import ClockState
from peerwatch_exporter.sources.host.filesystems import Space
from peerwatch_exporter.sources.host.queries import HostQueries
from peerwatch_exporter.sources.host.systemd import Unit, Units
from peerwatch_exporter.sources.nic.ethtool import EthtoolReader

FIXTURES = Path(__file__).parent / "exporter" / "fixtures"
NOW = 1_767_300_000.0
_SEED = 1


@functools.cache
def root_of(case: str) -> Path:
    """Return the directory that holds a case's files."""
    composition = _composition(case)
    if not composition:
        return FIXTURES / case
    root = _temporary() / case
    if "demo" in composition:
        root.mkdir()
        _tree(composition, root)
    else:
        shutil.copytree(FIXTURES / composition["base"], root, symlinks=True)
    shutil.copytree(FIXTURES / case, root, symlinks=True, dirs_exist_ok=True)
    return root


def library_of(case: str, is_first: Callable[[], bool] = lambda: False) -> FakeNvml | None:
    """Return a new NVML library of a case, or None if the case has none.

    Parameters
    ----------
    case
        Which one.
    is_first
        Whether the first snapshot is being taken, for cases that start healthy.
    """
    composition = _composition(case)
    if "demo" in composition:
        start = NOW - composition["seconds"]
        name, onset = composition["demo"], composition["onset"]
        starts_healthy = composition.get("starts_healthy", False)

        def clock() -> float:
            return start if starts_healthy and is_first() else NOW

        return SimulatedNvml(SCENARIOS[name], _SEED, start, onset, clock)
    scenario = scenario_of(case)
    return None if scenario is None else FakeNvml(scenario)


def ethtool_of(case: str) -> EthtoolReader:
    """Return the driver statistics of a case."""
    composition = _composition(case)
    if "demo" in composition:
        tree = Tree(_temporary(), SCENARIOS[composition["demo"]], _SEED, NOW, composition["onset"])
        nics = {slot.interface: nic for slot, nic in zip(SLOTS, tree.nics, strict=True)}
        return SimulatedEthtool(nics, lambda: composition["seconds"])
    return FileEthtool(root_of(case) / "ethtool.json")


def queries_of(case: str) -> HostQueries:
    """Return what a case's system answers: its ``answers.json``, a demonstration's, or nothing.

    The file has ``space`` (size, available, inodes, free inodes by mount point),
    ``clock`` (synchronised, offset, maximum error), ``failed`` and ``named`` units (name: state).
    """
    if "demo" in _composition(case):
        return simulated_queries(lambda: 100.0)
    path = root_of(case) / "answers.json"
    if not path.exists():
        return HostQueries()
    answers = json.loads(path.read_text())
    units = {
        kind: tuple(Unit(name, "loaded", state) for name, state in answers[kind].items())
        for kind in ("failed", "named")
    }
    return HostQueries(
        space=lambda mountpoint: Space(*answers["space"][mountpoint]),
        clock=lambda: ClockState(*answers["clock"]),
        units=lambda _names: Units(**units),
    )


def scenario_of(case: str) -> dict[str, Any] | None:
    """Return the NVML scenario of a case without a demonstration, or None if it has no NVML."""
    composition = _composition(case)
    path = FIXTURES / composition.get("base", case) / "nvml.json"
    if not path.exists():
        return None
    scenario = json.loads(path.read_text())
    scenario["gpus"] = scenario["gpus"][: composition.get("keep_gpus")]
    for key in {"driver_version", "missing_functions"} & composition.keys():
        scenario[key] = composition[key]
    every, single = composition.get("every_gpu", {}), composition.get("gpus", {})
    scenario["gpus"] = [
        _merged(_merged(gpu, every), single.get(str(index), {}))
        for index, gpu in enumerate(scenario["gpus"])
    ]
    return scenario


def _composition(case: str) -> dict[str, Any]:
    path = FIXTURES / case / "case.json"
    return json.loads(path.read_text()) if path.exists() else {}


def _merged(value: Any, patch: Any) -> Any:
    """Return a value changed by a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    merged = copy.deepcopy(value) if isinstance(value, dict) else {}
    for key, change in patch.items():
        if change is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), change)
    return merged


def _tree(composition: dict[str, Any], root: Path) -> None:
    seconds = composition["seconds"]
    scenario = SCENARIOS[composition["demo"]]
    tree = Tree(root, scenario, _SEED, NOW - seconds, composition["onset"])
    tree.create()
    tree.update(seconds)


@functools.cache
def _temporary() -> Path:
    path = Path(tempfile.mkdtemp(prefix="peerwatch-cases-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
