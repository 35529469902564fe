"""The simulator gives what it says: repeatable cases whose faults show on the faulty node."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from peerwatch_demo.simulator import (
    FAMILIES,
    Family,
    SimulatedCase,
    simulate,
    simulate_seed,
    write_case,
)
from peerwatch_demo.simulator.__main__ import main
from peerwatch_demo.simulator.family import FAULT_MIX, family_of
from peerwatch_demo.simulator.kinds import EVERYTHING, KINDS
from peerwatch_demo.simulator.workload import GPU_METRICS, NODE_METRICS
from peerwatch_detector.backtest.cases import load_case
from peerwatch_detector.config import DetectorConfig

SEED = 91_000
HASHES = {"plain": "6ca9b307dd9fc9f8", "hard": "af868f8529a5bb32", "staged": "5083782a6425dc44"}
# Short, without benign events, every usual effect there: what is left is the fault.
BARE = Family(
    nodes=(8,),
    seconds=700,
    onset=(300, 310),
    halt_after=(250, 260),
    effect=(1.0, 1.0),
    wander=0.005,
    offsets=0.01,
    hidden_effects=0.0,
    late_writer=0.0,
    lost_samples=0.0,
    restarts=0.0,
    two_faulty=0.0,
)


def one_kind(kind: str) -> SimulatedCase:
    return simulate("one", BARE, SEED, faulty=True, kind=kind)


def change_at_onset(case: SimulatedCase, metric: str, onset: int) -> np.ndarray:
    """How much each unit's level changes with the onset, as a factor, against its peers'."""
    values = case.samples[metric].reshape(-1, case.samples[metric].shape[-1]).astype(np.float64)
    before = np.nanmedian(values[:, 50 : onset - 5], axis=1) + 1
    after = np.nanmedian(values[:, onset + 40 : onset + 240], axis=1) + 1
    factor = after / before
    return np.abs(np.log(factor / np.median(factor)))


def test_the_same_seed_gives_the_same_case() -> None:
    first, again = (simulate("a", FAMILIES["hard"], SEED, faulty=True) for _ in range(2))
    other = simulate("a", FAMILIES["hard"], SEED + 1, faulty=True)
    assert first.fault == again.fault
    for metric, values in first.samples.items():
        np.testing.assert_array_equal(values, again.samples[metric])
    assert first.fault != other.fault


def test_a_healthy_case_has_no_fault_and_no_node_without_power() -> None:
    for seed in range(SEED, SEED + 4):
        case = simulate("well", FAMILIES["hard"], seed, faulty=False)
        assert (None, ()) == (case.fault, case.effects)
        power = np.nanmedian(case.samples["gpu_power"], axis=2)
        assert power.min() > 0.5 * np.median(power)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_fault_shows_on_the_faulty_node_only(kind: str) -> None:
    case = one_kind(kind)
    fault = case.fault
    assert (kind, 1) == (fault.kind, len(fault.nodes))
    (faulty,) = fault.nodes
    assert case.effects
    if EVERYTHING in case.effects:
        gone = np.isnan(case.samples["cpu_usage"][:, fault.onset :]).all(axis=1)
        assert [faulty] == np.flatnonzero(gone).tolist()
        return
    for effect in set(case.effects) - {"rdma"}:
        changes = change_at_onset(case, effect, fault.onset).reshape(8, -1)
        worst = changes.max(axis=1)
        assert faulty == int(worst.argmax())
        assert worst[faulty] > 2 * np.delete(worst, faulty).max()


def test_a_node_that_cannot_be_reached_falls_silent_for_good() -> None:
    family = replace(FAMILIES["plain"], lost_samples=0.0, restarts=0.0)
    # Half of these nodes fall silent, the others lose their network only.
    unreachable = (
        simulate("one", family, seed, faulty=True, kind="machine_unreachable")
        for seed in range(SEED, SEED + 8)
    )
    case = next(case for case in unreachable if EVERYTHING in case.effects)
    for values in case.samples.values():
        missing = np.isnan(values).reshape(len(case.nodes), -1, values.shape[-1]).all(axis=1)
        (faulty,) = case.fault.nodes
        assert missing[faulty, case.fault.onset :].all()
        assert 0 == np.delete(missing, faulty, axis=0).sum()


def test_a_crash_stops_all_nodes_and_a_slow_link_slows_all() -> None:
    crash = one_kind("ecc_error")
    tensor = crash.samples["gpu_tensor_activity"].reshape(8, 8, -1)
    assert tensor[..., crash.fault.onset + 30 : crash.fault.halt].mean() < 0.01
    assert crash.fault.halt + 40 == tensor.shape[-1]
    slow = one_kind("pcie_downgrade")
    assert slow.fault.halt is None
    tensor = np.median(slow.samples["gpu_tensor_activity"], axis=(0, 1))
    assert tensor[slow.fault.onset :].mean() < 0.97 * tensor[: slow.fault.onset].mean()


def test_samples_are_lost_within_the_bounds_of_the_family() -> None:
    family = replace(FAMILIES["hard"], restarts=0.0)
    shares = []
    for seed in range(SEED, SEED + 8):
        case = simulate("well", family, seed, faulty=False)
        lost = np.isnan(case.samples["cpu_usage"])
        np.testing.assert_array_equal(lost, np.isnan(case.samples["gpu_power"]).all(axis=1))
        shares.append(lost.mean())
    assert 0 < max(shares) <= family.lost_samples * 1.05


def test_limits_hold() -> None:
    case = simulate("hot", FAMILIES["hard"], SEED + 2, faulty=True)
    for metric, unit in (GPU_METRICS | NODE_METRICS).items():
        values = case.samples[metric]
        assert values.dtype == np.float32
        assert np.nanmin(values) >= 0
        assert np.nanmax(values) <= {"percent": 100, "ratio": 1, "celsius": 110}.get(unit, 1e13)


def test_the_drawn_faults_follow_the_published_mix() -> None:
    short = replace(BARE, nodes=(3,), seconds=100, onset=(40, 41), halt_after=(20, 21))
    drawn = [simulate("n", short, seed, faulty=True).fault.kind for seed in range(SEED, SEED + 300)]
    total = sum(FAULT_MIX.values())
    for kind, weight in FAULT_MIX.items():
        expected = weight / total
        assert abs(drawn.count(kind) / 300 - expected) < 4 * np.sqrt(expected / 300)


def test_a_written_case_is_read_by_the_detector(tmp_path: Path) -> None:
    assert 0 == main([str(tmp_path), "--family", "plain", "--cases", "2", "--seed", str(SEED)])
    assert [f"plain-{SEED}", f"plain-{SEED + 1}"] == sorted(
        folder.name for folder in tmp_path.iterdir()
    )
    simulated = simulate(f"plain-{SEED}", FAMILIES["plain"], SEED, faulty=True)
    case = load_case(tmp_path / f"plain-{SEED}")
    assert simulated.nodes == case.nodes
    assert simulated.fault.kind == case.truth.fault
    assert tuple(case.nodes[index] for index in simulated.fault.nodes) == case.truth.nodes
    assert (simulated.fault.onset, simulated.fault.halt) == (
        case.truth.onset_seconds,
        case.truth.halt_seconds,
    )
    np.testing.assert_allclose(
        case.frames["cpu_usage"].values, simulated.samples["cpu_usage"] / 100, rtol=1e-5
    )
    about = json.loads((tmp_path / f"plain-{SEED}" / "case.json").read_text())
    assert {**GPU_METRICS, **NODE_METRICS} == {
        name: metric["unit"] for name, metric in about["metrics"].items()
    }
    fitting = {metric.name for metric in DetectorConfig().detection_metrics() if case.fits(metric)}
    assert {"pfc_tx_rate", "cpu_usage", "gpu_duty_cycle", "gpu_power"} <= fitting
    assert load_case(tmp_path / f"plain-{SEED + 1}").truth.fault is None


def digest(family: str) -> str:
    whole = hashlib.sha256()
    for seed in (70_000, 70_001):
        case = simulate("x", FAMILIES[family], seed, faulty=seed % 2 == 0)
        for metric in sorted(case.samples):
            whole.update(case.samples[metric].tobytes())
    return whole.hexdigest()[:16]


@pytest.mark.parametrize(("family", "expected"), HASHES.items())
def test_the_older_families_stay_as_they_are(family: str, expected: str) -> None:
    # The shipped models and published numbers come of these very samples.
    assert expected == digest(family)


def test_each_fault_takes_the_kinds_in_turn_and_spreads_over_sizes_and_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Short ones: how long a case is decides nothing of this.
    def short(name: str, seed: int) -> Family:
        family = family_of(name, seed)
        return replace(family, seconds=100, lengths=(), onset=(40, 41), halt_after=(20, 21))

    monkeypatch.setattr("peerwatch_demo.simulator.case.family_of", short)
    seeds = range(90_000, 90_000 + 2 * len(KINDS))
    cases = [simulate_seed("each_fault", seed, faulty=False) for seed in seeds]
    counts = Counter(case.fault.kind for case in cases)
    assert dict.fromkeys(KINDS, 2) == dict(counts)
    assert {4, 64} <= {len(case.nodes) for case in cases}
    assert any(case.roles for case in cases)
    gpus = [gpu for case in cases for gpu in case.fault.gpus]
    assert len(set(gpus)) >= 4
    for case in cases:
        assert KINDS[case.fault.kind].gpus == len(case.fault.gpus)


def test_the_gpu_at_fault_is_the_one_that_shows_it_and_reaches_the_detector(
    tmp_path: Path,
) -> None:
    family = replace(BARE, faults="each")
    case = simulate("hot", family, SEED, faulty=True, kind="thermal_throttling")
    (faulty,), (gpu,) = case.fault.nodes, case.fault.gpus
    after = case.samples["gpu_sm_clock"][faulty, :, case.fault.onset + 30 :]
    assert gpu == int(np.nanmean(after, axis=1).argmin())
    write_case(case, tmp_path, compress=False)
    assert (str(gpu),) == load_case(tmp_path).truth.gpus


def test_a_soak_is_healthy_and_has_what_happens_in_clusters() -> None:
    # Small jobs only: what happens does not depend on their size.
    family = replace(FAMILIES["soak"], nodes=(6, 8), lengths=(3600,))
    cases = [simulate("well", family, seed, faulty=False) for seed in range(SEED, SEED + 8)]
    assert {None} == {case.fault for case in cases}
    busy = [np.median(case.samples["gpu_duty_cycle"], axis=(0, 1)) for case in cases]
    halted = [float((each < 1).mean()) for each in busy]
    hole = [bool(np.isnan(case.samples["cpu_usage"]).all(axis=0).any()) for case in cases]
    # Some are restarted, of some all samples are missing for seconds, and some never.
    assert 0 == min(halted) < max(halted) < 0.5
    assert {True, False} == set(hole)
    again = simulate("well", family, SEED, faulty=False)
    np.testing.assert_array_equal(cases[0].samples["gpu_power"], again.samples["gpu_power"])
