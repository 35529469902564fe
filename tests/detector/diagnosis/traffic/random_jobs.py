"""Healthy jobs of random layouts: whatever happens in them is nobody's fault."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detector.diagnosis.traffic.traffic_series import Layout, Watched, watch
from peerwatch_detector.detection.explanation.explain import JobProgress
from peerwatch_detector.diagnosis.traffic.watch import Doing


def healthy_job(seed: int, most_nodes: int = 512) -> Watched:
    """Watch a job with pauses, glitches, static differences, other traffic and lost samples."""
    random = np.random.default_rng(seed)
    seconds = 2700
    layout = Layout(
        nodes=int(np.exp(random.uniform(np.log(3), np.log(most_nodes + 1)))),
        seconds=seconds,
        period=float(random.uniform(1, 70)),
        jitter=float(random.choice([0.0, 0.02, 0.05, 0.15, 0.4])),
        drift=float(random.uniform(-0.4, 0.4)),
        duty=float(random.uniform(0.1, 1)),
        # A rate over less than the time between two scrapes is none.
        scrape_seconds=(scrape := int(random.choice([1, 1, 2, 5, 15]))),
        rate_seconds=max(scrape, int(random.choice([1, 2, 15]))),
        seed=seed,
        pauses=_checkpoints(random, seconds),
    )
    _differences(random, layout.rates)
    _glitches(random, layout.rates)
    evaluation = int(random.integers(900, 2100)) if random.random() < 0.5 else seconds
    if evaluation < seconds:
        layout.rates[:, evaluation : evaluation + int(random.integers(60, 400))] *= random.choice(
            [0.0, 0.1, 0.6]
        )
    values = layout.observed()
    lost = random.random(values.shape) < random.choice([0.0, 0.02, 0.2])
    values[lost] = np.nan
    if random.random() < 0.3:
        row, start = random.integers(layout.nodes), random.integers(seconds)
        values[row, start:] = np.nan
    computes = Doing(lambda since, time: JobProgress("trains"))
    return watch(layout, values, computes if evaluation < seconds else Doing())


def _checkpoints(random: np.random.Generator, seconds: int) -> tuple[tuple[int, int], ...]:
    if random.random() < 0.2:
        return ()
    every, length = random.uniform(240, 900), random.uniform(5, 90)
    begins = np.arange(random.uniform(0, every), seconds, every)
    return tuple((int(at), int(at + length * random.uniform(0.8, 1.3))) for at in begins)


def _differences(random: np.random.Generator, rates: NDArray[np.float64]) -> None:
    """Let stages of a pipeline send at other times, and a node much more than the others."""
    if random.random() < 0.4:
        for row in range(len(rates)):
            rates[row] = np.roll(rates[row], int(random.integers(0, 8)))
    rates *= np.exp(random.normal(0, 0.2, len(rates)))[:, None]
    if random.random() < 0.3:
        rates[0] *= random.uniform(0.3, 5)
    if random.random() < 0.3:
        start = np.arange(rates.shape[1]) % 300 < 40
        rates[0, start] += 5e9


def _glitches(random: np.random.Generator, rates: NDArray[np.float64]) -> None:
    """Let single nodes send more or less for up to two minutes, as with a rate of congestion."""
    for _ in range(int(random.integers(0, 4))):
        row, at = random.integers(len(rates)), random.integers(0, rates.shape[1])
        rates[row, at : at + int(random.integers(5, 120))] *= random.choice([0.0, 0.3, 2])
