"""The family ``fine``: what a degraded NIC does within a second, and hides in every mean over one.

Minder (NSDI'25, section 6.6) finds two degraded nodes of four by NIC throughput in milliseconds.
Here every iteration of a job hands the NICs some buckets of gradients; each node sends its share
of a bucket as fast as its NIC can, and the next bucket waits for the slowest. A NIC whose PCIe
link trained down sends the same bytes at a part of the line rate: over a second all nodes have the
same throughput, within a burst they have not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.backtest.cases import Case, Truth
from peerwatch_detector.frame import JobFrame, from_grid

METRIC, UNIT = "rdma_bytes", "bytes per second"
# What is simulated is finer than any sample.
_MILLISECOND = 0.001
# Of a NIC's line rate, what a PCIe 5.0 link of 8 or 4 lanes in place of 16 lets through: 31.5 and
# 15.8 GB/s, less 5 % for headers, to a port of 50 GB/s (400 Gbit/s).
_REMAINING = {"x8": 0.60, "x4": 0.30}


@dataclass(frozen=True, slots=True)
class FineFamily:
    """Ranges that fine cases are drawn from.

    Parameters
    ----------
    nodes
        Nodes of the job.
    faulty
        How many of them are degraded in a faulty case.
    step_seconds, seconds
        Of the samples, and of the case.
    onset
        Earliest and latest onset of the first fault.
    apart
        How long after the first the next NIC is degraded, at least and at most.
    widths
        PCIe widths that the degraded links train down to, one after the other.
    any_order
        Whether the order of the widths is drawn too.
    line_rate
        Of a node's NICs together, bytes per second.
    buckets
        Fewest and most bursts in an iteration.
    burst
        Shortest and longest burst of a healthy node, in seconds.
    compute
        Shortest and longest time without traffic after a burst, in seconds.
    pauses
        Mean number of checkpoints, in which nobody sends for some seconds.
    lost_samples
        Share of samples that are lost.
    """

    nodes: int = 4
    faulty: int = 2
    step_seconds: float = 0.01
    seconds: float = 60.0
    onset: tuple[float, float] = (25.0, 30.0)
    apart: tuple[float, float] = (0.0, 8.0)
    widths: tuple[str, ...] = ("x8", "x4")
    any_order: bool = True
    line_rate: float = 50e9
    buckets: tuple[int, int] = (3, 6)
    burst: tuple[float, float] = (0.05, 0.12)
    compute: tuple[float, float] = (0.05, 0.2)
    pauses: float = 0.5
    lost_samples: float = 0.005


FINE = FineFamily()


def simulate_fine(name: str, family: FineFamily, seed: int, *, faulty: bool) -> Case:
    """Draw one case; the same seed gives the same case."""
    random = np.random.default_rng(seed)
    nodes = tuple(f"node-{index:04d}" for index in range(family.nodes))
    onsets = np.full(family.nodes, np.inf)
    remaining = np.ones(family.nodes)
    if faulty:
        _degrade(random, family, onsets, remaining)
    # Ports of one kind have one line rate; how near a node comes to it differs a little for good.
    rates = family.line_rate * random.uniform(0.998, 1.0, family.nodes)
    sent = _send(random, family, rates, onsets, remaining)
    values = _sampled(sent, family.step_seconds)
    values[random.random(values.shape) < family.lost_samples] = np.nan
    times = from_grid(np.arange(values.shape[1]), family.step_seconds)
    frame = JobFrame(f"train-{name}", METRIC, nodes, times, values)
    bad = tuple(node for node, onset in zip(nodes, onsets, strict=True) if np.isfinite(onset))
    onset = float(onsets.min()) if bad else None
    truth = Truth("pcie_downgrade" if bad else None, bad, onset, None)
    return Case(name, f"train-{name}", family.step_seconds, {METRIC: frame}, truth, {METRIC: UNIT})


def coarser(case: Case, step_seconds: float) -> Case:
    """Return a case as a slower monitor would have recorded it: means over longer steps."""
    factor = round(step_seconds / case.step_seconds)
    frames = {}
    for name, frame in case.frames.items():
        count = frame.values.shape[1] // factor
        cut = frame.values[:, : count * factor].reshape(len(frame.nodes), count, factor)
        known = np.isfinite(cut)
        total = np.where(known, cut, 0).sum(axis=2, dtype=np.float64)
        means = (total / np.maximum(known.sum(axis=2), 1)).astype(np.float32)
        means[~known.any(axis=2)] = np.nan
        times = from_grid(np.arange(count), step_seconds)
        frames[name] = JobFrame(frame.job_id, name, frame.nodes, times, means)
    return Case(case.name, case.job_id, step_seconds, frames, case.truth, case.units)


def _degrade(
    random: np.random.Generator,
    family: FineFamily,
    onsets: NDArray[np.float64],
    remaining: NDArray[np.float64],
) -> None:
    """Draw which NICs are degraded, when, and what is left of their rate."""
    chosen = random.choice(family.nodes, size=family.faulty, replace=False)
    moment = random.uniform(*family.onset)
    widths = [*family.widths]
    if family.any_order:
        random.shuffle(widths)
    for node, width in zip(chosen, widths * family.faulty, strict=False):
        onsets[node], remaining[node] = moment, _REMAINING[width]
        moment += random.uniform(*family.apart)


def _send(
    random: np.random.Generator,
    family: FineFamily,
    rates: NDArray[np.float64],
    onsets: NDArray[np.float64],
    remaining: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the bytes every node sends in every millisecond, shape (nodes, milliseconds)."""
    sent = np.zeros((family.nodes, round(family.seconds / _MILLISECOND)))
    bursts = random.uniform(*family.burst, int(random.integers(*family.buckets, endpoint=True)))
    computes = random.uniform(*family.compute, len(bursts))
    pauses = np.sort(random.uniform(0, family.seconds, random.poisson(family.pauses)))
    now = float(random.uniform(0, 0.5))
    while now < family.seconds:
        if len(pauses) and now > pauses[0]:
            now, pauses = now + random.uniform(2, 4), pauses[1:]
        for burst, compute in zip(bursts, computes, strict=True):
            ends = []
            for node, rate in enumerate(rates):
                # The processes reach a collective some milliseconds apart.
                start = now + random.exponential(0.0015)
                speed = rate * (remaining[node] if start >= onsets[node] else 1.0)
                # Now and then a flow meets others in the fabric and gets less for one burst.
                met = random.uniform(0.6, 0.95) if random.random() < 0.04 else 1.0
                speed *= met * random.normal(0.98, 0.006)
                length = burst * family.line_rate / speed
                _fill(sent[node], start, start + length, speed)
                ends.append(start + length)
            now = max(ends) + compute * random.normal(1, 0.03)
    return sent


def _fill(sent: NDArray[np.float64], start: float, end: float, speed: float) -> None:
    """Add a burst at a steady speed to the milliseconds it lies in."""
    first, last = int(start / _MILLISECOND), min(int(end / _MILLISECOND), len(sent) - 1)
    if first > last:
        return
    edges = np.arange(first, last + 1) * _MILLISECOND
    inside = np.minimum(edges + _MILLISECOND, end) - np.maximum(edges, start)
    sent[first : last + 1] += np.maximum(inside, 0) * speed


def _sampled(sent: NDArray[np.float64], step_seconds: float) -> NDArray[np.float32]:
    """Return the throughput in every step, shape (nodes, steps)."""
    factor = round(step_seconds / _MILLISECOND)
    count = sent.shape[1] // factor
    summed = sent[:, : count * factor].reshape(len(sent), count, factor).sum(axis=2)
    throughput: NDArray[np.float32] = (summed / step_seconds).astype(np.float32)
    return throughput
