"""Slow, obvious versions of the detector's numerical functions, written from their docstrings."""

from __future__ import annotations

import math
import statistics

import numpy as np


def fill_nearest(values: np.ndarray, limit: int, lookahead: int) -> np.ndarray:
    """Look at every gap one by one; of two equally near samples the earlier one wins."""
    result = values.copy()
    rows, steps = values.shape
    for row in range(rows):
        for step in range(steps):
            if math.isfinite(values[row, step]):
                continue
            result[row, step] = math.nan
            reachable = []
            for other in range(steps):
                if not math.isfinite(values[row, other]):
                    continue
                if (other < step and step - other <= limit) or (
                    other > step and other - step <= lookahead
                ):
                    reachable.append((abs(other - step), other))
            if reachable:
                result[row, step] = values[row, min(reachable)[1]]
    return result


def windows(values: np.ndarray, length: int) -> list[list[list[float]]]:
    """Cut window by window, node by node."""
    nodes, steps = values.shape
    return [
        [[float(v) for v in values[node, end - length : end]] for node in range(nodes)]
        for end in range(length, steps + 1)
    ]


def distance_sums(points: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Sum distances pair by pair."""
    count, nodes, _ = points.shape
    result = np.full((count, nodes), math.nan)
    for window in range(count):
        for a in range(nodes):
            if present[window, a]:
                result[window, a] = sum(
                    math.dist(points[window, a].tolist(), points[window, b].tolist())
                    for b in range(nodes)
                    if present[window, b]
                )
    return result


def normal_score(row: list[float]) -> list[float]:
    """Standardise one window; nodes without a value stay NaN."""
    known = [v for v in row if math.isfinite(v)]
    if not known:
        return [math.nan] * len(row)
    mean, spread = statistics.fmean(known), statistics.pstdev(known)
    if spread <= 1e-9 * max(abs(mean), 1e-9):
        return [0.0 if math.isfinite(v) else math.nan for v in row]
    return [(v - mean) / spread for v in row]


def leave_one_out_median(row: list[float]) -> list[float]:
    """Take the median of the other present nodes for each present node."""
    result = []
    for index, value in enumerate(row):
        others = [v for i, v in enumerate(row) if i != index and math.isfinite(v)]
        fits = math.isfinite(value) and others
        result.append(statistics.median(others) if fits else math.nan)
    return result


def peer_score(row: list[float], floor: float) -> list[float]:
    """Measure each node's sum against the others' in the scale the docstring tells."""
    known = [v for v in row if math.isfinite(v)]
    if len(known) < 2:
        return [math.nan] * len(row)
    middle = statistics.median(known)
    spread = 1.4826 * statistics.median(abs(v - middle) for v in known)
    others = leave_one_out_median(row)
    return [
        (value - other) / max(spread, 0.15 * max(other, floor), 1e-12)
        if math.isfinite(value)
        else math.nan
        for value, other in zip(row, others, strict=True)
    ]


def single_candidates(row: list[float], threshold: float) -> list[bool]:
    """Mark the first node with the highest score over the threshold."""
    known = [v for v in row if math.isfinite(v)]
    if not known or max(known) <= threshold:
        return [False] * len(row)
    best = row.index(max(known))
    return [index == best for index in range(len(row))]


def streak_seconds(steps: list[tuple[float, bool, bool]], gap: float) -> float:
    """Follow one node sample by sample: (time, candidate, judged)."""
    start = last = judged = None
    quiet = 0.0
    for time, candidate, known in steps:
        if not known:
            continue
        hole = judged is not None and time - judged > 120.0
        step = 0.0 if judged is None else min(time - judged, 1.0)
        judged = time
        if hole:
            start = None
        if candidate:
            start = time if start is None else start
            last, quiet = time, 0.0
        else:
            quiet += step
            if quiet > gap:
                start = None
    return 0.0 if start is None or last is None else last - start


class Ring:
    """A dictionary of samples by row and second."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.newest = -1
        self.samples: dict[tuple[str, str], dict[int, float]] = {}

    def write(self, node: str, gpu: str, times: list[float], values: list[float]) -> None:
        row = self.samples.setdefault((node, gpu), {})
        for time, value in zip(times, values, strict=True):
            second = round(time)
            self.newest = max(self.newest, second)
            if math.isfinite(value):
                row[second] = value

    def keep(self, nodes: set[str]) -> None:
        self.samples = {key: row for key, row in self.samples.items() if key[0] in nodes}

    def value(self, node: str, gpu: str, second: int) -> float:
        if not self.newest - self.capacity < second <= self.newest:
            return math.nan
        return self.samples.get((node, gpu), {}).get(second, math.nan)


def wilson(hits: int, tries: int) -> tuple[float, float]:
    """Ends of the true shares that a two-sided score test at 5 % does not reject."""
    shares = np.linspace(0, 1, 200_001)[1:-1]
    spread = np.sqrt(shares * (1 - shares) / tries)
    kept = shares[np.abs(hits / tries - shares) <= 1.959964 * spread]
    return float(kept[0]), float(kept[-1])


def bootstrap_f1(cases: list[tuple[int, int, int]], draws: int) -> tuple[float, float]:
    """95 % interval of F1 over cases of (found, false findings, faults), drawn with replacement."""
    rng = np.random.default_rng(1)
    values = []
    for _ in range(draws):
        some = [cases[index] for index in rng.integers(0, len(cases), len(cases))]
        hits, false, faults = (sum(part) for part in zip(*some, strict=True))
        precision, recall = hits / (hits + false), hits / faults
        values.append(2 * precision * recall / (precision + recall))
    return float(np.quantile(values, 0.025)), float(np.quantile(values, 0.975))


def others_medians(column: list[float]) -> list[tuple[float, float]]:
    """Take low and high median of the others for each present unit of one second."""
    result = []
    for index, value in enumerate(column):
        others = [v for i, v in enumerate(column) if i != index and math.isfinite(v)]
        if math.isfinite(value) and others:
            result.append((statistics.median_low(others), statistics.median_high(others)))
        else:
            result.append((math.nan, math.nan))
    return result


def compare(window: list[list[float]]) -> list[tuple[float, float, float]]:
    """Average each unit and its peers over the seconds in which the unit and a peer are there."""
    steps = len(window[0])
    columns = [[row[step] for row in window] for step in range(steps)]
    medians = [others_medians(column) for column in columns]
    seen = sum(any(math.isfinite(v) for v in column) for column in columns)
    result = []
    for unit, row in enumerate(window):
        usable = [step for step in range(steps) if math.isfinite(medians[step][unit][0])]
        if len(usable) < max(1, seen // 2):
            result.append((math.nan, math.nan, math.nan))
            continue
        own = statistics.fmean(row[step] for step in usable)
        low = statistics.fmean(medians[step][unit][0] for step in usable)
        high = statistics.fmean(medians[step][unit][1] for step in usable)
        result.append((own, low, high))
    return result


def deviation(window: list[list[float]], offset: list[float], floor: float) -> list[float]:
    """Return the logarithm of own over peers, the nearer of the two medians, offsets taken out."""
    plain = [[v / math.exp(o) for v in row] for row, o in zip(window, offset, strict=True)]
    result = []
    for own, low, high in compare(plain):
        if not math.isfinite(own):
            result.append(math.nan)
            continue
        over_low = math.log((own + floor) / (low + floor))
        over_high = math.log((own + floor) / (high + floor))
        between = over_low > 0 > over_high or 0 in (over_low, over_high)
        result.append(0.0 if between else min(over_low, over_high, key=abs))
    return result


def began_together(starts: list[float], seconds: float) -> list[int]:
    """Count for each start those within so many seconds of it, itself included."""
    return [sum(abs(other - start) <= seconds for other in starts) for start in starts]
