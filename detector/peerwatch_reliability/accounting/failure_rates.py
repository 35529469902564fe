"""How often jobs and parts fail: by size of job, by cause, by month, and how that scales."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from peerwatch_reliability.accounting.intervals import (
    Rate,
    chi_square_quantile,
    dispersion_of,
    rate_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from peerwatch_reliability.records import Window

_WEEK = 7 * 86_400.0
# Of Newton's method: chosen, far more than it needs, as each doubles the digits that are right.
_STEPS = 50


class Exposed(NamedTuple):
    """An attempt as rates see it.

    Parameters
    ----------
    gpus, nodes
        Its size.
    end
        Unix seconds.
    run_seconds
        For which it could fail.
    failed
        Whether the infrastructure failed it.
    cause
        Why; empty: it did not.
    """

    gpus: int
    nodes: int
    end: float
    run_seconds: float
    failed: bool
    cause: str


def size_class(gpus: int) -> str:
    """Return the class of a size: the power of two at or above it, in GPUs; ``0`` without any."""
    return str(1 << max(0, gpus - 1).bit_length()) if gpus > 0 else "0"


class SizeRate(NamedTuple):
    """Failures of the jobs of a size class.

    Parameters
    ----------
    size_class
        As ``size_class`` returns it.
    jobs
        Rate of failures per second of a job's run; None: no job of that size ran.
    mean_nodes
        Mean number of nodes, weighted by run time.
    expected_mttf_seconds
        The 1/N line: what the rate of all nodes together says for that size; None: no failure.
    """

    size_class: str
    jobs: Rate
    mean_nodes: float
    expected_mttf_seconds: float | None


def rates_by_size(attempts: Sequence[Exposed], dispersion: float) -> list[SizeRate]:
    """Return the failures by size class, the smallest first."""
    by_class: defaultdict[str, list[Exposed]] = defaultdict(list)
    for each in attempts:
        by_class[size_class(each.gpus)].append(each)
    node_seconds = sum(each.nodes * each.run_seconds for each in attempts)
    failures = sum(each.failed for each in attempts)
    found = []
    for name in sorted(by_class, key=int):
        members = by_class[name]
        run = sum(each.run_seconds for each in members)
        rate = rate_of(sum(each.failed for each in members), run, dispersion)
        if rate is None:
            continue
        nodes = sum(each.nodes * each.run_seconds for each in members) / run
        line = node_seconds / failures / nodes if failures and nodes else None
        found.append(SizeRate(name, rate, nodes, line))
    return found


def weekly_dispersion(times: Iterable[float], window: Window) -> float:
    """Return φ of the counts of whole weeks of a window; 1 where there are too few weeks."""
    weeks = int((window.end - window.start) // _WEEK)
    counts = [0] * weeks
    for time in times:
        week = int((time - window.start) // _WEEK)
        if 0 <= week < weeks:
            counts[week] += 1
    return dispersion_of(counts)


def rates_by_cause(
    attempts: Sequence[Exposed], window: Window, node_days: float
) -> Mapping[str, Rate]:
    """Return failures per node-day, by cause."""
    counts = Counter(each.cause for each in attempts if each.failed)
    found = {}
    for cause, count in sorted(counts.items()):
        times = [each.end for each in attempts if each.failed and each.cause == cause]
        rate = rate_of(count, node_days, weekly_dispersion(times, window))
        if rate is not None:
            found[cause] = rate
    return found


class Scaling(NamedTuple):
    """How the rate of failures grows with the size of a job: rate ~ nodes ** slope.

    Parameters
    ----------
    slope, low, high
        With its 95 % interval; 1 is what independent nodes give.
    p_value
        How likely a deviation from 1 like this, or more of one, is by chance.
    dispersion
        Deviance over degrees of freedom, by which the interval was widened.
    """

    slope: float
    low: float
    high: float
    p_value: float
    dispersion: float


def scaling_of(sizes: Sequence[SizeRate]) -> Scaling | None:
    """Return the slope of a Poisson regression; None where fewer than two sizes have failures."""
    points = [
        (math.log(each.mean_nodes), each.jobs.count, each.jobs.exposure)
        for each in sizes
        if each.mean_nodes > 0 and each.jobs.exposure > 0
    ]
    if sum(count > 0 for _, count, _ in points) < 2:
        return None
    total, seconds = sum(count for _, count, _ in points), sum(each for *_, each in points)
    # It begins at the 1/N line.
    slope = 1.0
    offset = math.log(total / sum(math.exp(x) * each for x, _, each in points))
    for _ in range(_STEPS):
        fitted = [each * math.exp(offset + slope * x) for x, _, each in points]
        residual = [count - mean for (_, count, _), mean in zip(points, fitted, strict=True)]
        m_sum = sum(fitted)
        x_sum = sum(m * x for m, (x, *_) in zip(fitted, points, strict=True))
        xx_sum = sum(m * x * x for m, (x, *_) in zip(fitted, points, strict=True))
        determinant = m_sum * xx_sum - x_sum**2
        if determinant <= 1e-12 * max(1.0, m_sum * xx_sum) or seconds <= 0:
            return None
        first = sum(residual)
        second = sum(r * x for r, (x, *_) in zip(residual, points, strict=True))
        change = (m_sum * second - x_sum * first) / determinant
        offset += max(-1.0, min(1.0, (xx_sum * first - x_sum * second) / determinant))
        slope += max(-1.0, min(1.0, change))
        if abs(change) < 1e-10:
            break
    deviance = 2 * sum(
        (count * math.log(count / mean) if count else 0.0) - (count - mean)
        for (_, count, _), mean in zip(points, fitted, strict=True)
    )
    freedom = len(points) - 2
    phi = max(1.0, deviance / freedom) if freedom > 0 else 1.0
    error = math.sqrt(phi * m_sum / determinant)
    return Scaling(
        slope, slope - 1.96 * error, slope + 1.96 * error, _p_value((slope - 1) / error), phi
    )


def _p_value(z: float) -> float:
    return math.erfc(abs(z) / math.sqrt(2))


def differs(earlier: Rate, later: Rate, confidence: float = 0.95) -> bool:
    """Return whether a rate rose: the later one is above the earlier one by more than chance.

    Given both counts, that of the later is binomial; compared is chi square of its excess.
    """
    total = earlier.count + later.count
    if total == 0 or later.value is None:
        return False
    phi = max(earlier.dispersion, later.dispersion)
    share = later.exposure / (earlier.exposure + later.exposure)
    expected = total * share
    if later.count <= expected:
        return False
    variance = total * share * (1 - share) * phi
    limit = chi_square_quantile(2 * confidence - 1, 1)
    return (later.count - expected) ** 2 / variance > limit
