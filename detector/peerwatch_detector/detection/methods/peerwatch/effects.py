"""Who deviates from the peers in one metric at one step, and whether that has a common cause."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import MetricConfig
from peerwatch_detector.config.methods import PeerwatchConfig
from peerwatch_detector.detection.methods.peerwatch.baseline import Usual
from peerwatch_detector.detection.methods.peerwatch.levels import Scale
from peerwatch_detector.detection.methods.peerwatch.peers import Levels, compare

# A unit this far on its way to the minimum effect size is not learned from.
_SUSPECT = 0.6
# Of what deviates together some fall short of the minimum effect size or of the largest deviation.
_ALIKE_EFFECT, _ALIKE_SHARE = 0.75, 0.5
# While the job's level has collapsed, this share of its usual level is the least floor: above
# peerwatch.collapsed_share, so that what is left of the level counts little.
_COLLAPSED_FLOOR = 0.3
# Moved away from the peers' plain level by this share of the minimum effect size.
_AWAY = 0.7
# Up to so many nodes the threshold needs no allowance for their number.
_PLAIN_NODES = 64
# One GPU alone carries a deviation that is this many times that of the node's second worst.
_ALONE = 3.0


@dataclass(frozen=True, slots=True)
class StepDeviations:
    """How far every unit is from where its peers are, at one step.

    Parameters
    ----------
    effects
        Distance in minimum effect sizes, positive = higher than the peers, shape (n_units,);
        NaN = not known.
    spreads
        The same in spreads of its own past, not signed.
    away
        Whether the unit also moved away from the peers' plain level, in the same direction.
    collapsed
        Whether the job's level is so far below its usual one that only growth can be evaluated.
    shared
        How far the job's level is above its usual one, in minimum effect sizes.
    """

    effects: Levels
    spreads: Levels
    away: NDArray[np.bool_]
    collapsed: bool
    shared: float = 0.0

    @property
    def healthy(self) -> NDArray[np.bool_]:
        """Units that this step may be learned from, shape (n_units,)."""
        calm: NDArray[np.bool_] = ~(np.abs(self.effects) >= _SUSPECT)
        return calm & (not self.collapsed)


@dataclass(frozen=True, slots=True)
class Side:
    """The candidates on one side of the peers.

    Parameters
    ----------
    strength
        Per node, its evidence in minimum effect sizes, shape (n_nodes,); 0 = no candidate.
    gpu
        Per node, the index of the one GPU that carries it, or -1.
    common
        Whether candidates were dropped because too many nodes deviate alike.
    """

    strength: Levels
    gpu: NDArray[np.int64]
    common: bool


@dataclass(frozen=True, slots=True)
class StepCandidates:
    """What one metric shows of all nodes at one step, in next to no memory.

    Parameters
    ----------
    nodes
        How many there are.
    candidates
        Of the side above the peers and of that below: indices of the nodes whose evidence reaches
        the minimum effect size, its strength, and the GPU that carries it.
    common
        By side, whether candidates were dropped because too many nodes deviate alike.
    evaluated, unobservable
        As bits: about whom anything is known, and whose peers' level has collapsed.
    """

    nodes: int
    candidates: tuple[tuple[NDArray[np.intp], Levels, NDArray[np.int64]], ...]
    common: tuple[bool, ...]
    evaluated: NDArray[np.uint8]
    unobservable: NDArray[np.uint8]

    @classmethod
    def of(
        cls, sides: Sequence[Side], evaluated: NDArray[np.bool_], unobservable: NDArray[np.bool_]
    ) -> StepCandidates:
        """Keep what counts of both sides, the one above the peers first."""
        found = [np.flatnonzero(side.strength >= 1) for side in sides]
        return cls(
            len(evaluated),
            tuple(
                (at, side.strength[at], side.gpu[at]) for at, side in zip(found, sides, strict=True)
            ),
            tuple(side.common for side in sides),
            np.packbits(evaluated),
            np.packbits(unobservable),
        )

    def sides(self) -> Iterator[tuple[Side, NDArray[np.bool_], NDArray[np.bool_]]]:
        """Return each side with who was evaluated or unobservable; what does not count is 0."""
        evaluated, unobservable = (
            np.unpackbits(bits, count=self.nodes).astype(np.bool_)
            for bits in (self.evaluated, self.unobservable)
        )
        for (at, strength, gpu), common in zip(self.candidates, self.common, strict=True):
            whole = Side(np.zeros(self.nodes), np.full(self.nodes, -1), common)
            whole.strength[at], whole.gpu[at] = strength, gpu
            yield whole, evaluated, unobservable

    @property
    def anybody(self) -> bool:
        """Whether any node is a candidate."""
        return any(len(at) for at, _, _ in self.candidates)


def spreads_needed(threshold: float, nodes: int) -> float:
    """Return how many spreads are beyond doubt among so many nodes.

    The largest of n draws from a normal distribution is about sqrt(2 ln n) standard deviations
    out, so the threshold grows alike; it stands as it is up to 64 nodes.
    """
    return threshold * math.sqrt(max(1.0, math.log(max(nodes, 2)) / math.log(_PLAIN_NODES)))


def deviate(
    window: NDArray[np.float32],
    middle: Levels,
    usual: Usual,
    metric: MetricConfig,
    scale: Scale,
    config: PeerwatchConfig,
) -> StepDeviations:
    """Compare every unit with its peers.

    Parameters
    ----------
    window
        Shape (n_units, n_steps): the trailing seconds, NaN = missing.
    middle
        The job's median in each of them, shape (n_steps,).
    usual
        What is normal.
    metric, scale, config
        Settings.
    """
    level = float(np.nanmean(middle)) if np.isfinite(middle).any() else np.nan
    collapsed = bool(level < config.collapsed_share * usual.level)
    floor = max(scale.floor, _COLLAPSED_FLOOR * usual.level) if collapsed else scale.floor
    own, low, high = compare(scale.without(window, usual.offset))
    over_low, over_high = (scale.distance(own, others, floor) for others in (low, high))
    # Between the two medians a unit is where its peers are; else the nearer one counts.
    nearer = np.where(np.abs(over_low) < np.abs(over_high), over_low, over_high)
    distance = np.where(np.sign(over_low) != np.sign(over_high), 0.0, nearer)
    distance = np.where(np.isfinite(over_low), distance, np.nan)
    # What usually shows nothing cannot show less than usual.
    nothing = scale.nothing(usual.offset, usual.level)
    distance = np.where(nothing, np.maximum(distance, 0.0), distance)
    effect = scale.min_effect_size(metric, usual.level)
    plain = scale.distance(scale.restored(own, usual.offset), level, floor)
    away = (np.sign(plain) == np.sign(distance)) & (np.abs(plain) >= _AWAY * effect)
    spreads = np.abs(distance) / np.maximum(usual.spread, 1e-6)
    shared = float(scale.distance(np.array([level]), usual.level, floor)[0]) / effect
    return StepDeviations(distance / effect, spreads, away, collapsed, shared)


def candidates_on(
    deviation: StepDeviations,
    evident: NDArray[np.bool_],
    shape: tuple[int, int],
    sign: int,
    largest: float,
) -> Side:
    """Pick the candidates on one side.

    Parameters
    ----------
    deviation
        Of all units.
    evident
        Units whose deviation is beyond doubt, shape (n_units,).
    shape
        (n_nodes, n_gpus).
    sign
        1 for higher than the peers, -1 for lower.
    largest
        If more nodes than this deviate alike, the cause is common and nobody is a candidate.
    """
    effects = np.nan_to_num(sign * deviation.effects).clip(0).reshape(shape)
    known = np.where(evident.reshape(shape), effects, 0.0)
    worst = effects.max(axis=1)
    alike = worst >= max(_ALIKE_EFFECT, _ALIKE_SHARE * float(worst.max(initial=0.0)))
    strength = known.max(axis=1)
    if int(alike.sum()) > largest:
        dropped = bool((strength >= 1).any())
        return Side(np.zeros(shape[0]), np.full(shape[0], -1), dropped)
    return Side(strength, _carrier(effects, known), common=False)


def _carrier(effects: Levels, known: Levels) -> NDArray[np.int64]:
    """Return per node the GPU that alone carries its deviation, or -1."""
    none = np.full(len(effects), -1)
    if effects.shape[1] < 2:
        return none
    ordered = np.sort(effects, axis=1)
    alone = ordered[:, -1] > _ALONE * ordered[:, -2]
    return np.where(alone & (known.max(axis=1) > 0), effects.argmax(axis=1), none)
