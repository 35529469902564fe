from __future__ import annotations

import numpy as np
import pytest

from detector import naive
from detector.fakes import (
    ONSET,
    START,
    Replay,
    config_for,
    healthy,
    node_names,
    shifted,
)


@pytest.mark.parametrize("nodes", [6, 9])
def test_method_minder_is_the_paper_step_by_step(nodes: int) -> None:
    config = config_for(method="minder", continuity={"threshold_seconds": 20})
    rng = np.random.default_rng(nodes)
    values = rng.normal(0.5, 0.05, (nodes, 160)).astype(np.float32)
    values[2, 60:] += 0.3
    replay = Replay(config, {"load": values})
    replay.run(cycle=1)
    expected = naive_minder(values, threshold=2.0, needed=20.0)
    assert expected is not None
    found = [(f.node, f.since - START, f.raised - START, f.method) for f in replay.raised]
    assert [(*expected, "minder")] == found


def naive_minder(
    values: np.ndarray, threshold: float, needed: float
) -> tuple[str, float, float] | None:
    """Return node, first second and second of detection, sample by sample."""
    names = node_names(len(values))
    deviation: tuple[int, int] | None = None
    for end, window in enumerate(naive.windows(values, 8), start=7):
        points = np.clip(np.array(window), 0, 1)[None]
        sums = naive.distance_sums(points, np.ones((1, len(values)), dtype=bool))
        scores = naive.normal_score(sums[0].tolist())
        best = int(np.argmax(scores))
        if scores[best] <= threshold:
            deviation = None
            continue
        if deviation is None or deviation[0] != best:
            deviation = (best, end)
        if end - deviation[1] >= needed:
            return names[best], float(deviation[1]), float(end)
    return None


def test_method_minder_breaks_a_deviation_at_once() -> None:
    config = config_for(method="minder", continuity={"threshold_seconds": 60})
    values = healthy(8, 400, noise=0.02)
    values[2, 60:] += 0.3
    values[2, 100:110] -= 0.3
    found = Replay(config, {"load": values})
    found.run(cycle=1)
    first = found.raised[0]
    assert "node-02" == first.node
    assert first.since - START > 105


def test_method_zscore_names_after_its_period_and_warns() -> None:
    config = config_for(method="zscore", zscore={"period_seconds": 300})
    replay = Replay(config, {"load": shifted(8, 900, {3: 0.3})})
    assert [] == replay.run(until=ONSET + 295, cycle=5)
    replay.run(cycle=5)
    finding = replay.raised[0]
    assert ("node-03", "zscore", "warning") == (finding.node, finding.method, finding.severity)
    assert 300 <= finding.raised - finding.since <= 306


@pytest.mark.parametrize("method", ["minder", "zscore"])
def test_other_methods_stay_quiet_on_noise(method: str) -> None:
    config = config_for(method=method)
    rng = np.random.default_rng(5)
    values = rng.normal(0.5, 0.02, (8, 1800)).astype(np.float32)
    assert [] == Replay(config, {"load": values}).run()


def test_only_the_plain_zscore_warns() -> None:
    seen = {}
    for method in ("peerwatch", "minder", "zscore"):
        config = config_for(method=method, zscore={"period_seconds": 300})
        replay = Replay(config, {"load": shifted(8, 900, {3: 0.3})})
        replay.absent_since = {"node-05": START + 780.0}
        seen |= {finding.method: finding.severity for finding in replay.run()}
    expected = dict.fromkeys(("peerwatch", "minder", "absent"), "critical") | {"zscore": "warning"}
    assert expected == seen
