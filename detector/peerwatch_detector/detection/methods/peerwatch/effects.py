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
SUSPECT = 0.6
# Of what deviates together some fall short of the minimum effect size or of the largest deviation.
_ALIKE_EFFECT, _ALIKE_SHARE = 0.75, 0.5
# More nodes than this that deviate alike have a common cause; congestion spreads to two.
MOST_TOGETHER = {"work": 2, "load": 2, "memory": 2, "network": 1, "own": 2}
# Nodes whose deviation is at least this share of one's own are its equals. In what drifts slowly
# they become candidates one after another, minutes apart; congestion is shared more unequally.
EQUAL_SHARE = {"work": 0.75, "load": 0.75, "memory": 0.75, "network": 0.5, "own": 0.75}
# While the job's level has collapsed, this share of its usual level is the least floor: above
# peerwatch.collapsed_share, so that what is left of the level counts little.
_COLLAPSED_FLOOR = 0.3
# Up to so many nodes the threshold needs no allowance for their number.
_PLAIN_NODES = 64
# One GPU alone carries a deviation that is this many times that of the node's second worst.
_ALONE = 3.0
_NOBODY = (np.empty(0, np.intp), np.empty(0), np.empty(0, np.int64), np.empty(0, np.bool_))


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
    plain
        How far it is from the peers' plain level, whatever was usual for it, in minimum effect
        sizes and positive in the direction of ``effects``.
    collapsed
        Whether the job's level is so far below its usual one that only growth can be evaluated.
    shared
        How far the job's level is above its usual one, in minimum effect sizes.
    """

    effects: Levels
    spreads: Levels
    plain: Levels
    collapsed: bool
    shared: float = 0.0

    @property
    def healthy(self) -> NDArray[np.bool_]:
        """Units that this step may be learned from, shape (n_units,)."""
        calm: NDArray[np.bool_] = ~(np.abs(self.effects) >= SUSPECT)
        return calm & (not self.collapsed)

    @property
    def among_peers(self) -> NDArray[np.bool_]:
        """Units that are where their peers are, whatever was usual for them, shape (n_units,).

        In a job that works that is no fault. A program beside the job that has ended, or a first
        rank that has moved to another node, leaves such units, and their past would be that of
        then for ever if only what is usual were learned from.
        """
        near: NDArray[np.bool_] = np.abs(self.plain) < SUSPECT
        return near & (not self.collapsed)


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
    of_many
        Per node, whether too many others deviate by nearly as much, shape (n_nodes,). It comes and
        goes where a phase of the job begins, so it ends no deviation.
    """

    strength: Levels
    gpu: NDArray[np.int64]
    common: bool
    of_many: NDArray[np.bool_]

    @classmethod
    def empty(cls, nodes: int, *, common: bool) -> Side:
        """Return a side without candidates."""
        return cls(np.zeros(nodes), np.full(nodes, -1), common, np.zeros(nodes, dtype=np.bool_))


@dataclass(frozen=True, slots=True)
class StepCandidates:
    """What one metric shows of all nodes at one step, in next to no memory.

    Parameters
    ----------
    nodes
        How many there are.
    candidates
        Of the side above the peers and of that below: indices of the nodes whose evidence reaches
        the minimum effect size, its strength, the GPU that carries it, and who is one of many.
    common
        By side, whether candidates were dropped because too many nodes deviate alike.
    evaluated, unobservable
        As bits: about whom anything is known, and whose peers' level has collapsed.
    """

    nodes: int
    candidates: tuple[tuple[NDArray[np.intp], Levels, NDArray[np.int64], NDArray[np.bool_]], ...]
    common: tuple[bool, ...]
    evaluated: NDArray[np.uint8]
    unobservable: NDArray[np.uint8]

    @classmethod
    def nobody(
        cls, evaluated: NDArray[np.bool_], unobservable: NDArray[np.bool_]
    ) -> StepCandidates:
        """Return that there is no candidate."""
        return cls(
            len(evaluated),
            (_NOBODY, _NOBODY),
            (False, False),
            np.packbits(evaluated),
            np.packbits(unobservable),
        )

    @classmethod
    def nobody_at(
        cls,
        times: Sequence[float],
        evaluated: NDArray[np.bool_],
        unobservable: NDArray[np.bool_],
    ) -> dict[float, StepCandidates]:
        """Return by time that there is no candidate; shape (n_times, n_nodes) of both."""
        return {
            time: cls(evaluated.shape[1], (_NOBODY, _NOBODY), (False, False), *known)
            for time, *known in zip(
                times,
                np.packbits(evaluated, axis=1),
                np.packbits(unobservable, axis=1),
                strict=True,
            )
        }

    @classmethod
    def of(
        cls, sides: Sequence[Side], evaluated: NDArray[np.bool_], unobservable: NDArray[np.bool_]
    ) -> StepCandidates:
        """Keep what counts of both sides, the one above the peers first."""
        found = [np.flatnonzero(side.strength >= 1) for side in sides]
        return cls(
            len(evaluated),
            tuple(
                (at, side.strength[at], side.gpu[at], side.of_many[at])
                for at, side in zip(found, sides, strict=True)
            ),
            tuple(side.common for side in sides),
            np.packbits(evaluated),
            np.packbits(unobservable),
        )

    def who(self, bits: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return who is meant by ``evaluated`` or ``unobservable``, shape (n_nodes,)."""
        return np.unpackbits(bits, count=self.nodes).view(np.bool_)

    def sides(self) -> Iterator[tuple[Side, NDArray[np.bool_], NDArray[np.bool_]]]:
        """Return each side with who was evaluated or unobservable; what does not count is 0."""
        evaluated, unobservable = self.who(self.evaluated), self.who(self.unobservable)
        for (at, strength, gpu, many), common in zip(self.candidates, self.common, strict=True):
            whole = Side.empty(self.nodes, common=common)
            whole.strength[at], whole.gpu[at], whole.of_many[at] = strength, gpu, many
            yield whole, evaluated, unobservable

    @property
    def anybody(self) -> bool:
        """Whether any node is a candidate."""
        return any(len(at) for at, *_ in self.candidates)


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
    level = mean_known(middle)
    collapsed, floor = floor_at(level, usual, scale, config)
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
    spreads = np.abs(distance) / np.maximum(usual.spread, 1e-6)
    shared = shared_effect(level, usual, metric, scale, config)
    return StepDeviations(
        distance / effect, spreads, np.sign(distance) * plain / effect, collapsed, shared
    )


def floor_at(
    level: float, usual: Usual, scale: Scale, config: PeerwatchConfig
) -> tuple[bool, float]:
    """Return whether the job's level has collapsed, and the floor that its units have then."""
    collapsed = bool(level < config.collapsed_share * usual.level)
    return collapsed, max(scale.floor, _COLLAPSED_FLOOR * usual.level) if collapsed else scale.floor


def shared_effect(
    level: float, usual: Usual, metric: MetricConfig, scale: Scale, config: PeerwatchConfig
) -> float:
    """Return how far a level is above its usual one, in minimum effect sizes; NaN = not known."""
    _, floor = floor_at(level, usual, scale, config)
    distance = scale.distance(np.array([level]), usual.level, floor)
    return float(distance[0]) / scale.min_effect_size(metric, usual.level)


def mean_known(values: Levels) -> float:
    """Return the mean of the finite values; NaN = none. ``nanmean`` takes four times as long."""
    known = np.isfinite(values)
    count = int(np.count_nonzero(known))
    if count < len(values):
        values = np.where(known, values, 0.0)
    return float(np.add.reduce(values)) / count if count else np.nan


def candidates_on(
    deviation: StepDeviations,
    evident: NDArray[np.bool_],
    shape: tuple[int, int],
    sign: int,
    largest: float,
    kind: str | None = None,
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
    kind
        Of the metric: it says how many equals make a node one of many. None = equals do not count.
    """
    effects = np.fmax(sign * deviation.effects, 0.0).reshape(shape)
    known = np.where(evident.reshape(shape), effects, 0.0)
    worst = effects.max(axis=1)
    alike = worst >= max(_ALIKE_EFFECT, _ALIKE_SHARE * float(worst.max(initial=0.0)))
    strength = known.max(axis=1)
    if int(alike.sum()) > largest:
        dropped = bool((strength >= 1).any())
        return Side.empty(shape[0], common=dropped)
    of_many = np.zeros(len(worst), dtype=bool)
    if kind is not None:
        of_many = _equals(worst, EQUAL_SHARE[kind]) > MOST_TOGETHER[kind]
    return Side(strength, _carrier(effects, known), common=False, of_many=of_many)


def _equals(worst: Levels, share: float) -> NDArray[np.int64]:
    """Return for every node how many, itself included, deviate by this share of it or more."""
    below = np.searchsorted(np.sort(worst), share * worst, side="left")
    return (len(worst) - below).astype(np.int64)


def _carrier(effects: Levels, known: Levels) -> NDArray[np.int64]:
    """Return per node the GPU that alone carries its deviation, or -1."""
    none = np.full(len(effects), -1)
    if effects.shape[1] < 2:
        return none
    ordered = np.sort(effects, axis=1)
    alone = ordered[:, -1] > _ALONE * ordered[:, -2]
    return np.where(alone & (known.max(axis=1) > 0), effects.argmax(axis=1), none)
