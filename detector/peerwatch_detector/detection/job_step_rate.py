"""How fast a job finishes its steps, compared with itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobStepRate:
    """A job's step rate against its own usual one.

    Parameters
    ----------
    metric
        Which counter it is of.
    usual
        Steps per second without pauses, over the last hour.
    ratio
        The present step rate as a share of it; 1 = as usual, 0.5 = half as fast.
    """

    metric: str
    usual: float
    ratio: float
