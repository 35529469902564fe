"""Effective training time ratio, expected from how often what is in a job fails.

Sources: Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research Clusters"
(arXiv 2410.21680), section 3.4, for the quantities; the exact form follows from exponential times
between failures, of which the first two are approximations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

_DAY = 86_400.0
# As DGX and HGX nodes have, and those of the paper.
GPUS_PER_NODE = 8
# Of the golden section: halves an interval in 1.44 steps, so this is exact to a millionth.
_STEPS = 60

Formula = Literal["A", "B", "C"]


@dataclass(frozen=True, slots=True)
class Plan:
    """How a job of some size runs and fails; times in seconds.

    Parameters
    ----------
    nodes
        How many nodes it holds; may be a fraction.
    failures_per_node_day
        r_f, of the infrastructure only.
    checkpoint_seconds
        Time between two checkpoints.
    restart_seconds
        u0, from the start of an attempt until it makes progress.
    queue_seconds
        q, the wait before each attempt.
    write_seconds
        w, for which writing a checkpoint halts the job; 0: it is written in the background.
    run_seconds
        R, the productive time it needs; infinite: a long run.
    """

    nodes: float
    failures_per_node_day: float
    checkpoint_seconds: float = 3600.0
    restart_seconds: float = 300.0
    queue_seconds: float = 0.0
    write_seconds: float = 0.0
    run_seconds: float = math.inf

    @property
    def failures_per_second(self) -> float:
        """λ."""
        return self.nodes * self.failures_per_node_day / _DAY

    @property
    def mttf_seconds(self) -> float:
        """Mean time to failure, infinite where nothing fails."""
        rate = self.failures_per_second
        return 1 / rate if rate > 0 else math.inf


def expected_ettr(plan: Plan, formula: Formula = "C") -> float:
    """Return the expected ETTR, 0 to 1.

    ``A`` is the published first-order form, a lower bound which is good to 5 % while less than
    0.3 failures fall into a restart and half a checkpoint interval; ``B`` adds checkpoints that
    halt the job, and leaves out the queue; ``C`` is exact for exponential times between failures
    and a long run, and is divided by what writing takes.
    """
    rate = plan.failures_per_second
    interval, restart, queue = plan.checkpoint_seconds, plan.restart_seconds, plan.queue_seconds
    kept = max(0.0, 1 - rate * (restart + interval / 2))
    written = 1 + plan.write_seconds / interval
    if formula == "B":
        return kept / written
    if formula == "A":
        once = 0.0 if math.isinf(plan.run_seconds) else 1 / plan.run_seconds
        return kept / ((1 + restart * once) * (1 + rate * queue) + queue * once * kept)
    # expm1: for rare failures the ratio tends to 1.
    of_interval = rate * interval
    progress = of_interval / math.expm1(of_interval) if 0 < of_interval < 700 else float(rate == 0)
    return progress * math.exp(-rate * restart) / (1 + rate * queue) / written


def optimal_checkpoint_seconds(plan: Plan, formula: Formula = "C") -> float | None:
    """Return the checkpoint interval with the highest expected ETTR.

    Of ``A`` and ``B`` it is Young's sqrt(2w/λ). None where writing costs nothing or nothing fails:
    then there is no optimum.
    """
    rate, write = plan.failures_per_second, plan.write_seconds
    if rate <= 0 or write <= 0:
        return None
    young = math.sqrt(2 * write / rate)
    if formula != "C":
        return young
    low, high = young / 10, young * 10
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(_STEPS):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if _with_interval(plan, left) < _with_interval(plan, right):
            low = left
        else:
            high = right
    return (low + high) / 2


def checkpoint_seconds_for(plan: Plan, target: float, formula: Formula = "C") -> float | None:
    """Return the longest checkpoint interval that reaches a target; None: none does.

    Only for checkpoints that are written in the background: then shorter is always better.
    """
    low, high = 1e-3, 100 * _DAY
    if _with_interval(plan, low, formula) < target:
        return None
    for _ in range(2 * _STEPS):
        middle = math.sqrt(low * high)
        if _with_interval(plan, middle, formula) >= target:
            low = middle
        else:
            high = middle
    return low


def _with_interval(plan: Plan, seconds: float, formula: Formula = "C") -> float:
    return expected_ettr(replace(plan, checkpoint_seconds=seconds), formula)
