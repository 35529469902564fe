"""Faults: what the job does because of one, and on which metrics the faulty node shows it.

A crash leaves the other ranks spinning in a collective until a time-out halts the job (Minder,
NSDI'25, section 3). A degradation slows every rank by the same amount; only the faulty node shows
why.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peerwatch_demo.job.timeline import Phase
from peerwatch_demo.job.workload import Workload
from peerwatch_demo.simulator.family import Family
from peerwatch_demo.simulator.kinds import EVERYTHING, KINDS, Effect
from peerwatch_demo.simulator.signals import PER_GPU, Values


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a case.

    Parameters
    ----------
    kind
        Its name in ``KINDS``.
    nodes
        Indices of the faulty nodes.
    onset, halt
        Seconds from the start; ``halt`` is None if the job goes on.
    strength
        Factor on the typical size of its effects, on a logarithmic scale.
    hidden
        Probability that a usual effect is missing.
    gpus
        The GPUs at fault, the same on every metric that shows single ones; empty = drawn anew for
        every metric.
    """

    kind: str
    nodes: tuple[int, ...]
    onset: int
    halt: int | None
    strength: float
    hidden: float
    gpus: tuple[int, ...] = ()


def draw_fault(random: np.random.Generator, kind: str, work: Workload, family: Family) -> Fault:
    """Draw when, where and how strongly a fault of this kind happens."""
    onset = int(random.integers(*family.onset))
    halts = random.random() < KINDS[kind].halts
    halt = onset + int(random.integers(*family.halt_after)) if halts else None
    if halt is not None and halt >= work.seconds:
        halt = work.seconds - 1
    count = 2 if random.random() < family.two_faulty and work.nodes >= 8 else 1
    nodes = random.choice(work.nodes, size=count, replace=False)
    return Fault(
        kind,
        tuple(sorted(int(node) for node in nodes)),
        onset,
        halt,
        float(random.uniform(*family.effect)),
        family.hidden_effects,
    )


def stop_or_slow(random: np.random.Generator, work: Workload, fault: Fault) -> None:
    """Change what the whole job does from the onset on."""
    if fault.halt is None:
        lost = 1 - random.uniform(*KINDS[fault.kind].slowdown)
        work.timeline.slow(1 - lost * min(1.0, fault.strength), fault.onset)
        return
    # The others go on until they meet in a collective.
    meets = fault.onset + int(random.integers(2, 25))
    work.timeline.add(Phase.WAIT, min(meets, fault.halt), fault.halt)
    work.timeline.add(Phase.HALT, fault.halt)


def show(random: np.random.Generator, values: Values, work: Workload, fault: Fault) -> list[str]:
    """Let the faulty nodes show the fault; return the metrics that show it."""
    effects = KINDS[fault.kind].effects
    shown = [effect for effect in effects if random.random() < effect.likely * (1 - fault.hidden)]
    # A fault that shows nowhere would be nobody's to find.
    shown = shown or [max(effects, key=lambda effect: effect.likely)]
    end = fault.halt
    for effect in shown:
        for node in fault.nodes:
            _apply(random, values, work, fault, effect, node, end)
    return [effect.metric for effect in shown]


def _apply(
    random: np.random.Generator,
    values: Values,
    work: Workload,
    fault: Fault,
    effect: Effect,
    node: int,
    end: int | None,
) -> None:
    begin = fault.onset + int(random.integers(0, 12))
    if effect.metric == EVERYTHING:
        for array in values.values():
            array[node, ..., fault.onset :] = np.nan
        return
    span: slice | NDArray[np.intp] = slice(begin, end)
    factor = max(effect.factor, 1e-3) ** fault.strength
    if effect.flaps:
        span = _flapping(random, begin, min(end or work.seconds, work.seconds))
    if effect.own_source:
        usual = work.levels[effect.metric][Phase.TRAIN]
        noise = random.lognormal(0, 0.3, len(values[effect.metric][node, span]))
        values[effect.metric][node, span] += usual * (factor - 1) * noise
    elif effect.gpus and effect.metric in PER_GPU:
        gpus = random.choice(8, size=effect.gpus, replace=False)
        if effect.gpus <= len(fault.gpus):
            gpus = np.array(fault.gpus[: effect.gpus])
        for gpu in gpus:
            values[effect.metric][node, gpu, span] *= factor
    else:
        values[effect.metric][node, ..., span] *= factor


def _flapping(random: np.random.Generator, begin: int, end: int) -> NDArray[np.intp]:
    """Return the seconds in which a link that comes and goes is down."""
    down: NDArray[np.bool_] = np.zeros(end, dtype=np.bool_)
    at = begin
    while at < end:
        lasts = int(random.integers(3, 20))
        down[at : at + lasts] = True
        at += lasts + int(random.integers(5, 40))
    return np.flatnonzero(down)
