"""Slow obvious versions: from samples to steps, and from steps to rates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from peerwatch_detector.reading.selection import Grid


def naive_steps(samples: Iterable[tuple[int, float]], grid: Grid, age: int) -> list[float]:
    """Return the newest value at or before every step that is not too old; NaN where none is."""
    usable = sorted(dict(samples).items())
    found = []
    for step in range(grid.start, grid.end + 1, grid.step):
        before = [(time, value) for time, value in usable if step - age <= time <= step]
        with np.errstate(over="ignore"):
            value = float(np.float32(before[-1][1])) if before else math.nan
        found.append(value if math.isfinite(value) else math.nan)
    return found


def naive_rates(
    samples: Iterable[tuple[int, float]], grid: Grid, age: int, window: int
) -> list[float]:
    """Return rates over a window of steps: what was gained from step to step, resets included."""
    wide = Grid(grid.start - window * grid.step, grid.end, grid.step)
    usable = sorted(dict(samples).items())
    levels = []
    for step in range(wide.start, wide.end + 1, wide.step):
        before = [(time, value) for time, value in usable if step - age <= time <= step]
        levels.append(before[-1][1] if before and math.isfinite(before[-1][1]) else math.nan)
    rates = []
    for step in range(window, len(levels)):
        part = levels[step - window : step + 1]
        if math.isnan(part[0]) or math.isnan(part[-1]):
            rates.append(math.nan)
            continue
        present = [level for level in part if not math.isnan(level)]
        gained = sum(
            float(np.float32(new - old if new >= old else new)) for old, new in pairwise(present)
        )
        rates.append(gained / (window * grid.step / 1000))
    return rates
