"""Steps taken together, one by one, and with every unit compared: all the same to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from detector.fakes import node_names
from detector.training_job import FAULT, NODES, ONSET, Values, changed, replay, training
from peerwatch_detector.detection.methods.peerwatch import calm, comparison
from peerwatch_detector.detection.methods.peerwatch.calm import CalmSteps

SECONDS = 1000
STAGES = {node: f"stage-{index // 3}" for index, node in enumerate(node_names(NODES))}


def with_gaps(values: Values) -> Values:
    """Some samples are missing, a node for a while, and all of them for some seconds."""
    rng = np.random.default_rng(5)
    for rows in values.values():
        rows[rng.random(rows.shape) < 0.03] = np.nan
        rows[1, ..., 200:290] = np.nan
        rows[..., 400:404] = np.nan
    return values


def restarted() -> Values:
    """The job is started anew while a node differs in what its processes do."""
    values = training(SECONDS, rests=(ONSET, ONSET + 60))
    values["gpu_memory_used"] = np.full_like(values["gpu_power"], 5e10)
    values["gpu_memory_used"][..., ONSET : ONSET + 60] = 6e8
    return changed(values, "cpu_usage", 2, 1.5, slice(ONSET + 60, None))


def in_three_stages() -> Values:
    """A node leaves its stage for a while; all of another one rise for good."""
    values = changed(with_gaps(training(SECONDS)), "cpu_usage", 4, 0.5, slice(ONSET, ONSET + 100))
    return changed(values, "gpu_power", slice(0, 3), 1.3, FAULT)


JOBS: dict[str, tuple[Callable[[], Values], dict[str, str]]] = {
    "healthy": (lambda: with_gaps(training(SECONDS, rests=(500, 540), waits=(700, 730))), {}),
    "a GPU is slow": (lambda: changed(training(SECONDS), "gpu_power", (2, 1), 0.6, FAULT), {}),
    "now and then": (
        lambda: changed(with_gaps(training(SECONDS)), "cpu_usage", 3, 2.0, slice(450, None, 7)),
        {},
    ),
    "restarted": (restarted, {}),
    "in stages": (in_three_stages, STAGES),
    "next to nothing": (
        lambda: {k: v * np.float32(1e-4) for k, v in training(SECONDS).items()},
        {},
    ),
}


def evaluated(job: str) -> list[Any]:
    """Return all that is said of a job in every cycle, and all that is known of it at the end."""
    make, roles = JOBS[job]
    here = replay(make())
    here.roles = roles
    said = [repr(here.step(until)) for until in (603, 618, 621, *range(636, SECONDS, 15))]
    known = []
    for name, memory in sorted(here.metrics.items()):
        for role, baseline in [("", memory.baseline), *sorted(memory.roles.items())]:
            past = baseline._past, baseline._levels, baseline.earlier
            known.append((name, role, *(each.tobytes() for each in past)))
            known.append((baseline.learned_until, memory.evaluated_until))
    return [said, known]


@pytest.mark.parametrize("job", JOBS)
def test_steps_taken_together_say_what_each_alone_says(
    job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    together: list[int] = []

    def counted(*arguments: Any) -> Any:
        found = calm.compare_calm(*arguments)
        together.append(len(found))
        return found

    monkeypatch.setattr(comparison, "compare_calm", counted)
    expected = evaluated(job)
    # Or it would be no test.
    assert together.count(3) > 20

    monkeypatch.setattr(comparison, "compare_calm", lambda *_: {})
    assert expected == evaluated(job)

    monkeypatch.setattr(
        comparison, "calm_steps", lambda view, group, *_: CalmSteps(view, group, ())
    )
    assert expected == evaluated(job)
