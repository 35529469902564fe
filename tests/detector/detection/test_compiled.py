"""The detection with numba, without it, and ready before the first job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

# What the detection says of two faults, and which types its compiled functions were made for.
SCRIPT = """
import json, sys
if sys.argv[1] == "without":
    sys.modules["numba"] = None

import numpy as np
from detector.fakes import Replay, config_for, metric, shifted
from peerwatch_detector import compiled, frame
from peerwatch_detector.detection.methods.peerwatch import baseline, ranked, rows
from peerwatch_detector.detection.methods.peerwatch import running_medians, screening
from peerwatch_detector.detection import continuity
from peerwatch_detector.detection import distances
from peerwatch_detector.detection.methods.minder import windows as minder_windows
from peerwatch_detector.detection.methods.peerwatch import peers
from peerwatch_detector.service import prepare
from peerwatch_detector.models import forward
from peerwatch_detector.models.lstm_vae import LstmVae
from peerwatch_detector.models.shipped import shipped_bundle

def made():
    functions = [
        rows._spreads_of_sorted, continuity._add_quiet, running_medians._find,
        screening._correct, screening._within, ranked._find, distances.distance_sums,
        forward.embed, minder_windows._fill, peers._add_up, baseline._take, frame._average,
    ]
    return [len(one.signatures) for one in functions] if compiled.AVAILABLE else []

def findings(method):
    config = config_for(metric("load"), metric("power"), method=method)
    # As a ring gives them, each in memory of its own.
    values = {"load": shifted(8, 700, {1: 0.3}), "power": shifted(8, 700, {5: -0.2}, 1)}
    values["load"][2, 100:140] = np.nan
    replay = Replay(config, values)
    replay.run(until=600, cycle=600)
    replay.run()
    return [(one.node, one.metric, one.since, one.raised, one.score) for one in replay.raised]

prepare.prepare()
before = made()
found = {method: findings(method) for method in ("peerwatch", "minder", "zscore")}
windows = np.random.default_rng(0).random((300, 8)).astype(np.float32)
weights = shipped_bundle().weights["gpu_power"]
points = LstmVae(weights).embed(windows).tolist()
print(json.dumps([found, points, before, made()]))
"""


def evaluated(how: str) -> list[Any]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, how], env=environment, check=True, stdout=subprocess.PIPE
    )
    found: list[Any] = json.loads(done.stdout)
    return found


def test_without_numba_the_same_is_found() -> None:
    findings, points, *_ = evaluated("with")
    slow_findings, slow_points, *_ = evaluated("without")
    for method, expected in slow_findings.items():
        found = findings[method]
        assert [tuple(finding[:4]) for finding in expected] == [
            tuple(finding[:4]) for finding in found
        ]
        assert [finding[4] for finding in expected] == pytest.approx(
            [finding[4] for finding in found], rel=1e-5
        )
    assert slow_findings["peerwatch"]
    assert slow_findings["minder"]
    for expected, found in zip(slow_points, points, strict=True):
        assert expected == pytest.approx(found, abs=1e-5)


def test_an_evaluation_compiles_nothing_that_was_not_made_ready() -> None:
    _, _, before, after = evaluated("with")
    assert all(before)
    assert before == after
