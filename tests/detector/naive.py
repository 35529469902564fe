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


def apart(a: list[float], b: list[float], distance: str) -> float:
    """Measure two points by the distance's definition."""
    steps = [abs(x - y) for x, y in zip(a, b, strict=True)]
    if distance == "manhattan":
        return sum(steps)
    if distance == "chebyshev":
        return max(steps, default=0.0)
    return math.sqrt(sum(step**2 for step in steps))


def distance_sums(
    points: np.ndarray, present: np.ndarray, distance: str = "euclidean"
) -> np.ndarray:
    """Sum distances pair by pair."""
    count, nodes, _ = points.shape
    result = np.full((count, nodes), math.nan)
    for window in range(count):
        for a in range(nodes):
            if present[window, a]:
                result[window, a] = sum(
                    apart(points[window, a].tolist(), points[window, b].tolist(), distance)
                    for b in range(nodes)
                    if present[window, b]
                )
    return result


def shrunk_covariance(points: np.ndarray) -> np.ndarray:
    """Estimate the covariance as Ledoit and Wolf (2004) write it, point by point."""
    count, width = points.shape
    centred = points - points.mean(axis=0)
    outer = [np.outer(row, row) for row in centred]
    sample = sum(outer, np.zeros((width, width))) / count
    target = np.trace(sample) / width * np.eye(width)
    d2 = float(np.sum((sample - target) ** 2)) / width
    b2 = sum(float(np.sum((product - sample) ** 2)) / width for product in outer) / count**2
    if d2 == 0:
        return sample
    b2 = min(b2, d2)
    return b2 / d2 * target + (d2 - b2) / d2 * sample


def mahalanobis_sums(points: np.ndarray) -> list[float]:
    """Sum the Mahalanobis distances of one window's nodes pair by pair."""
    inverse = np.linalg.pinv(shrunk_covariance(points), rcond=1e-12, hermitian=True)
    return [sum(math.sqrt(max(0.0, (a - b) @ inverse @ (a - b))) for b in points) for a in points]


def filled_window(row: list[float], first: int, last: int, limit: int) -> list[float]:
    """Fill the samples first to last of a row from the nearest that is not after last."""
    result = []
    for step in range(first, last + 1):
        reach = [
            (abs(step - other), other)
            for other in range(last + 1)
            if math.isfinite(row[other]) and abs(step - other) <= limit
        ]
        result.append(row[min(reach)[1]] if reach else math.nan)
    return result


def minder(
    values: dict[str, list[list[float]]],
    needed: float,
    *,
    joined: bool = False,
    distance: str = "euclidean",
    threshold: float = 2.0,
    limit: int = 600,
) -> list[tuple[str, int, int, int]]:
    """Walk through a job second by second: (metric, node, since, second of the finding).

    Values lie between 0 and 1, and a finding stands for good.
    """
    names = list(values)
    nodes, steps = len(values[names[0]]), len(values[names[0]][0])
    deviations: dict[str, tuple[int, int] | None] = dict.fromkeys(names)
    flagged: list[tuple[str, int, int, int]] = []
    for end in range(7, steps):
        points = {
            name: [filled_window(row, end - 7, end, limit) for row in values[name]]
            for name in names
        }
        scores = {name: _window_scores([points[name]], distance) for name in names}
        own = scores
        if joined:
            together = _window_scores([points[name] for name in names], distance)
            scores = {names[0]: together}
        for name, row in scores.items():
            best = max(range(nodes), key=lambda node: _or_least(row[node]))
            if not _or_least(row[best]) > threshold:
                deviations[name] = None
            elif deviations[name] is None or deviations[name][0] != best:
                deviations[name] = (best, end)
        for name in scores:
            deviation = deviations[name]
            if deviation and end - deviation[1] >= needed:
                node, since = deviation
                if node not in [finding[1] for finding in flagged]:
                    shown = max(names, key=lambda n: _or_least(own[n][node])) if joined else name
                    flagged.append((shown, node, since, end))
                break
    return flagged


def _or_least(value: float) -> float:
    return value if math.isfinite(value) else -math.inf


def _window_scores(parts: list[list[list[float]]], distance: str) -> list[float]:
    """Return the normal scores of one window's nodes, by all parts together."""
    nodes = len(parts[0])
    # A metric nobody has does not count.
    parts = [part for part in parts if any(math.isfinite(sum(row)) for row in part)]
    here = [n for n in range(nodes) if parts and all(math.isfinite(sum(p[n])) for p in parts)]
    if not here:
        return [math.nan] * nodes
    if distance == "mahalanobis" and len(parts) > 1:
        means = np.array([[statistics.fmean(part[n]) for part in parts] for n in here])
        sums = dict(zip(here, mahalanobis_sums(means), strict=True))
    else:
        rows = {n: [v for part in parts for v in part[n]] for n in here}
        if distance == "mahalanobis":
            rows = {n: [statistics.fmean(row)] for n, row in rows.items()}
        sums = {a: sum(apart(rows[a], rows[b], distance) for b in here) for a in here}
    return normal_score([sums.get(n, math.nan) for n in range(nodes)])


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


def deviation_seconds(steps: list[tuple[float, bool, bool]], gap: float) -> float:
    """Follow one node sample by sample: (time, candidate, evaluated)."""
    start = last = evaluated = None
    quiet = 0.0
    for time, candidate, known in steps:
        if not known:
            continue
        hole = evaluated is not None and time - evaluated > 120.0
        step = 0.0 if evaluated is None else min(time - evaluated, 1.0)
        evaluated = time
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
        draw = [cases[index] for index in rng.integers(0, len(cases), len(cases))]
        hits, false, faults = (sum(part) for part in zip(*draw, strict=True))
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


def spread(row: list[float], least: int) -> tuple[float, float]:
    """Take the median and the median absolute deviation of what is known."""
    known = [value for value in row if math.isfinite(value)]
    if len(known) < least:
        return math.nan, math.nan
    middle = statistics.median(known)
    return middle, statistics.median(abs(value - middle) for value in known)


def long_deviations(
    candidates: list[int | None], times: list[int], needed: float, since: tuple[int, int] | None
) -> list[tuple[int, int, int]]:
    """Walk window by window: (node, start, end) of every deviation that is long enough.

    None = nobody was heard; -1 = no candidate; ``since`` is the node and the start of what ran.
    """
    found = []
    node, start, last = (*(since or (-1, 0)), times[0] - 1 if times else 0)
    for candidate, time in [*zip(candidates, times, strict=True), (-1, math.inf)]:
        if candidate is None:
            continue
        if candidate != node or time - last > 120:
            if node >= 0 and last >= times[0] and last - start >= needed:
                found.append((node, start, last))
            node, start = candidate, time
        last = time
    return found
