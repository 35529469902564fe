from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detector.fakes import (
    START,
    Replay,
    config_for,
    healthy,
    shifted,
)


@pytest.mark.parametrize("cycle", [1, 7, 10_000], ids=["1s", "7s", "one batch"])
@pytest.mark.parametrize("method", ["peerwatch", "minder", "zscore"])
def test_findings_do_not_depend_on_how_the_cycles_fall(method: str, cycle: int) -> None:
    config = config_for(method=method, zscore={"period_seconds": 300})
    values = shifted(8, 800, {1: 0.3})
    reference = Replay(config, {"load": values})
    reference.run(cycle=15)
    other = Replay(config, {"load": values})
    other.run(cycle=cycle)
    assert 1 == len(reference.standing)
    assert {n: (f.key, f.since) for n, f in reference.standing.items()} == {
        n: (f.key, f.since) for n, f in other.standing.items()
    }


def states(replay: Replay) -> dict[str, list[float]]:
    memory = replay.metrics["load"]
    usual = memory.baseline.usual(memory.evaluated_until + 15)
    found: dict[str, list[float]] = {
        "learned": memory.baseline.learned.tolist(),
        "offset": np.round(np.nan_to_num(usual.offset, nan=-9), 6).tolist(),
        "spread": np.round(np.nan_to_num(usual.spread, nan=-9), 6).tolist(),
        "evaluated": [memory.evaluated_until],
    }
    for name, side in (("high", memory.high), ("low", memory.low)):
        found |= {
            f"{name} start": np.nan_to_num(side.deviations.start, nan=-1).tolist(),
            f"{name} last": np.nan_to_num(side.deviations.last, nan=-1).tolist(),
            f"{name} quiet": side.deviations.quiet.tolist(),
            f"{name} since": np.nan_to_num(side.since, nan=-1).tolist(),
            f"{name} strength": np.round(side.strength, 6).tolist(),
        }
    return found


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10_000),
    nodes=st.integers(3, 9),
    missing=st.sampled_from([0.0, 0.05, 0.4]),
    cuts=st.lists(st.integers(1, 90), min_size=1, max_size=40),
)
def test_every_deviation_and_offset_is_the_same_however_the_cycles_fall(
    seed: int, nodes: int, missing: float, cuts: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    values = healthy(nodes, 400, seed, noise=0.05)
    values[1, 200:] += 0.15
    # Whole outages of single nodes, longer than what is filled.
    for node in range(nodes):
        for start in range(0, 400, 50):
            if rng.random() < missing:
                values[node, start : start + int(rng.integers(1, 40))] = np.nan
    config = config_for(similarity={"baseline_seconds": 120}, peerwatch={"threshold": 1.0})
    batch = Replay(config, {"load": values})
    batch.step(400)
    cycles = Replay(config, {"load": values})
    for cut in cuts:
        if cycles.done + cut < 400:
            cycles.step(cycles.done + cut)
    cycles.step(400)
    assert states(batch) == states(cycles)


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), end=st.integers(300, 790))
def test_the_future_never_changes_what_was_found_before(seed: int, end: int) -> None:
    values = healthy(6, 800, seed, noise=0.03)
    values[2, 150:] += 0.25
    values[4, end:] = np.nan
    config = config_for(continuity={"threshold_seconds": 100})
    whole, cut = Replay(config, {"load": values}), Replay(config, {"load": values[:, :end]})
    whole.run(cycle=10)
    cut.run(cycle=10)
    last = START + end - 1 - (end % 10)
    assert cut.raised[:1] == [f for f in whole.raised if f.raised <= last][:1]
