"""How a recurrent classifier is trained."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FitSettings:
    """How a classifier is trained.

    Parameters
    ----------
    hidden
        Size of its state.
    passes
        Over all examples.
    batch
        Examples of a step.
    rate, decay, dropout
        Of the optimiser AdamW, and of the state.
    seed
        Makes it repeatable.
    """

    hidden: int = 24
    passes: int = 8
    batch: int = 32
    rate: float = 0.01
    decay: float = 0.01
    dropout: float = 0.3
    seed: int = 0
