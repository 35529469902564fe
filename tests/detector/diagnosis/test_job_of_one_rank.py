"""A job of one rank has nobody to compare with or to wait for: no diagnoser names it."""

from __future__ import annotations

import pytest

from detector.diagnosis.exported import answers, series
from detector.diagnosis.layouts import snapshot
from peerwatch_detector.diagnosis.registry import DIAGNOSERS


@pytest.mark.parametrize("diagnoser", DIAGNOSERS, ids=lambda diagnoser: diagnoser.name)
@pytest.mark.parametrize("position", ["41/41", "41/40"], ids=["goes on", "in its own barrier"])
def test_it_is_named_by_no_diagnoser(diagnoser, position):
    own = {"rank": 0, "node": "c0", "group": "0"}
    state = snapshot(f"0: 0 {position}", {"0": (0,)})
    more = {
        "ranks": [series({**own, "world_size": 1}, 1)],
        "waits": [series(own, 0.9)],
        "queued": [series(own, 3e6)],
        "loss": [series(own, 0.4)],
        "stages": [series({"description": "pp", "members": "0"}, 1)],
        "steps": [series(own, 1.0)],
        "spans": [series({**own, "segment": "forward"}, 0.9)],
    }
    made = diagnoser("llm")
    for seconds in range(0, 600, 30):
        found = {**dict.fromkeys(diagnoser.queries, ()), **answers(state), **more}
        verdicts = made.diagnose(found, 1000.0 + seconds)
        assert [verdict for verdict in verdicts if verdict.names_node] == []
