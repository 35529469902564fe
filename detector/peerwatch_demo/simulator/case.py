"""One simulated case: drawn from a family by its seed, and written in the case format."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peerwatch_demo.simulator.benign import disturb, plan_late_writer, write_late
from peerwatch_demo.simulator.family import FAULT_MIX, Family, family_of
from peerwatch_demo.simulator.faults import Fault, draw_fault, show, stop_or_slow
from peerwatch_demo.simulator.kinds import KINDS
from peerwatch_demo.simulator.operations import Operations, plan_operations
from peerwatch_demo.simulator.signals import draw_signals, finish, lose_samples
from peerwatch_demo.simulator.workload import GPU_METRICS, NODE_METRICS, draw_stages, draw_workload

# What is recorded after the job has halted: chosen, long enough for a finding that comes late.
_AFTERMATH_SECONDS = 40
# Longest times largest of the cases whose length is drawn: half an hour of 512 nodes, two hours of
# 128; about 2 GiB while it is drawn.
_MOST_NODE_SECONDS = 512 * 1800


@dataclass(frozen=True, slots=True)
class SimulatedCase:
    """A recorded job and what was wrong with it.

    Parameters
    ----------
    name
        Its name.
    nodes
        Node names.
    samples
        By metric, float32 of shape (nodes, seconds) or (nodes, gpus, seconds), NaN = lost.
    fault
        What was wrong, or None.
    effects
        The metrics that show it.
    roles
        The stage of every node, where the job has stages.
    """

    name: str
    nodes: tuple[str, ...]
    samples: dict[str, NDArray[np.float32]]
    fault: Fault | None
    effects: tuple[str, ...]
    roles: dict[str, str] = field(default_factory=dict)


def simulate(
    name: str, family: Family, seed: int, *, faulty: bool, kind: str | None = None
) -> SimulatedCase:
    """Draw one case; the same seed gives the same case.

    Parameters
    ----------
    name, family, seed
        Its name, what it is drawn from, and the seed.
    faulty
        Whether there is a fault.
    kind
        Its kind; None = drawn by ``FAULT_MIX``.
    """
    random = np.random.default_rng(seed)
    # What came later to the simulator has a stream of its own, so that older cases stay as they
    # are.
    more = np.random.default_rng([seed, 1])
    count = int(random.choice(family.nodes))
    length = _length(more, family, count)
    work = draw_workload(random, count, length)
    draw_stages(random, work, family.stages)
    operations = plan_operations(more, work) if family.operations else Operations()
    fault = None
    late = plan_late_writer(random, work, family)
    if faulty:
        if kind is None:
            kinds, weights = list(FAULT_MIX), np.array(list(FAULT_MIX.values()))
            kind = str(random.choice(kinds, p=weights / weights.sum()))
        fault = draw_fault(random, kind, work, family)
        if family.faults == "each":
            gpus = more.choice(8, size=KINDS[kind].gpus, replace=False)
            fault = replace(fault, gpus=tuple(sorted(int(gpu) for gpu in gpus)))
        stop_or_slow(random, work, fault)
    values = draw_signals(random, work, family)
    disturb(random, values, work, family)
    if late is not None:
        write_late(values, work, late)
    operations.apply(values)
    effects = show(random, values, work, fault) if fault is not None else []
    missing = {metric: np.isnan(array) for metric, array in values.items()}
    values = finish(random, {metric: np.nan_to_num(array) for metric, array in values.items()})
    if fault is not None and fault.halt is not None:
        length = min(length, fault.halt + _AFTERMATH_SECONDS)
    samples = {
        metric: values[metric][..., :length].astype(np.float32)
        for metric in (*GPU_METRICS, *NODE_METRICS)
    }
    absent = missing["cpu_usage"][:, :length]
    for array in samples.values():
        array[np.broadcast_to(absent if array.ndim == 2 else absent[:, None], array.shape)] = np.nan
    lose_samples(random, samples, family)
    nodes = tuple(f"node-{index:04d}" for index in range(count))
    roles = {}
    if work.stages.any() and (family.roles_told >= 1 or more.random() < family.roles_told):
        roles = {node: f"stage-{stage}" for node, stage in zip(nodes, work.stages, strict=True)}
    return SimulatedCase(name, nodes, samples, fault, tuple(effects), roles)


def simulate_seed(name: str, seed: int, *, faulty: bool = True) -> SimulatedCase:
    """Draw the case of a seed from the family of a name, one of ``FAMILY_NAMES``.

    Whether it is faulty is the family's, where that says so, and ``faulty`` otherwise.
    """
    family = family_of(name, seed)
    faulty = faulty if family.faults == "half" else family.faults == "each"
    kind = list(KINDS)[seed % len(KINDS)] if family.faults == "each" else None
    return simulate(f"{name}-{seed}", family, seed, faulty=faulty, kind=kind)


def _length(random: np.random.Generator, family: Family, nodes: int) -> int:
    """Return the length of a case: jobs of hundreds of nodes are short, for their memory."""
    if not family.lengths:
        return family.seconds
    shorter = [length for length in family.lengths if length * nodes <= _MOST_NODE_SECONDS]
    return int(random.choice(shorter or family.lengths[:1]))


def write_case(case: SimulatedCase, folder: Path, *, compress: bool = True) -> None:
    """Write ``case.json`` and ``samples.npz`` into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    seconds = case.samples["cpu_usage"].shape[1]
    units = GPU_METRICS | NODE_METRICS
    fault = case.fault
    meta = {
        "name": case.name,
        "job_id": f"train-{case.name}",
        "step_seconds": 1.0,
        "seconds": seconds,
        "nodes": list(case.nodes),
        "gpus_per_node": 8,
        **({"roles": case.roles} if case.roles else {}),
        "metrics": {
            metric: {
                "unit": units[metric],
                "axes": ["node", "gpu", "time"] if array.ndim == 3 else ["node", "time"],
            }
            for metric, array in case.samples.items()
        },
        "truth": {
            "fault": None if fault is None else fault.kind,
            "nodes": [] if fault is None else [case.nodes[index] for index in fault.nodes],
            "onset_seconds": None if fault is None else fault.onset,
            "halt_seconds": None if fault is None else fault.halt,
            **({"gpus": [str(gpu) for gpu in fault.gpus]} if fault and fault.gpus else {}),
        },
    }
    (folder / "case.json").write_text(json.dumps(meta, indent=1) + "\n")
    with (folder / "samples.npz").open("wb") as file:
        arrays: dict[str, Any] = dict(case.samples)
        (np.savez_compressed if compress else np.savez)(file, **arrays)
