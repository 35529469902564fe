"""The list of lemons, with what it is worth beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from peerwatch_reliability.lemons.episodes import (
    Episode,
    Repairs,
    by_node,
    merged,
    repair_effectiveness,
)
from peerwatch_reliability.lemons.score import Score, scores_of
from peerwatch_reliability.lemons.signals import (
    Signals,
    Threshold,
    reasons_of,
    sorted_signals,
    threshold_curve,
)
from peerwatch_reliability.records import Window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from peerwatch_reliability.settings.config import LemonConfig

_DAY = 86_400.0


class Lemon(NamedTuple):
    """A node that is flagged.

    Parameters
    ----------
    score
        What is expected of it.
    episodes
        Faults within the window, those soon after one another as one.
    reasons
        Signals in which it is above 95 % of the fleet.
    """

    score: Score
    episodes: int
    reasons: tuple[str, ...]


class Lemons(NamedTuple):
    """Which nodes fail again and again.

    Parameters
    ----------
    scores
        Of all nodes, the highest first.
    flagged
        The lemons, the worst first.
    signals
        By node.
    thresholds
        What each threshold of each signal would flag.
    base_share
        Share of the fleet with a fault in the second half of the window; None: too short.
    right_share, lift
        The same of those that the first half would have flagged, and how many times the fleet's
        rate of faults theirs was; None: it would have flagged none.
    named
        How many those are.
    repairs
        How often returned nodes fail again.
    probation
        Nodes that returned a short time ago, with the days that are left.
    """

    scores: Sequence[Score]
    flagged: Sequence[Lemon]
    signals: Mapping[str, Signals]
    thresholds: Sequence[Threshold]
    base_share: float | None
    right_share: float | None
    lift: float | None
    named: int
    repairs: Repairs
    probation: Mapping[str, float]


def find_lemons(
    episodes: Sequence[Episode],
    signals: Mapping[str, Signals],
    window: Window,
    config: LemonConfig,
    up_days: Mapping[str, float] | None = None,
) -> Lemons:
    """Return the lemons of a window.

    Parameters
    ----------
    episodes
        Faults of nodes, not merged, also those before the window.
    signals
        Of every node of the fleet.
    window
        The time in which episodes are counted.
    config
        What makes a lemon.
    up_days
        For how many days of the history a node was there; others were all the time.
    """
    inside = [each for each in episodes if window.start <= each.start <= window.end]
    history = Window(window.end - config.history_days * _DAY, window.end)
    scores = scores_of(episodes, signals, history, config.half_life_days, up_days)
    flagged = flagged_of(scores, inside, config)
    counts = {node: len(found) for node, found in by_node(merged(inside, _merge(config))).items()}
    fleet = sorted_signals(signals)
    middle = (window.start + window.end) / 2
    first = [each for each in inside if each.start <= middle]
    second = [each for each in inside if each.start > middle]
    known = [each for each in episodes if each.start <= middle]
    before = Window(middle - config.history_days * _DAY, middle)
    named = flagged_of(scores_of(known, signals, before, config.half_life_days), first, config)
    worth = worth_of([each.node for each in named], second, len(signals))
    returned = {
        each.node: config.probation_days - (window.end - each.end) / _DAY
        for each in inside
        if each.end is not None and window.end - each.end < config.probation_days * _DAY
    }
    return Lemons(
        scores,
        [
            Lemon(each, counts.get(each.node, 0), reasons_of(signals[each.node], fleet))
            for each in flagged
        ],
        signals,
        threshold_curve(signals),
        worth.base_share,
        worth.right_share,
        worth.lift,
        len(named),
        # Of the longer history: within the window hardly a return was observed for 28 days.
        repair_effectiveness([e for e in episodes if e.start >= history.start], window.end),
        {node: left for node, left in sorted(returned.items()) if left > 0},
    )


def flagged_of(
    scores: Sequence[Score], inside: Sequence[Episode], config: LemonConfig
) -> list[Score]:
    """Return the scores of the lemons: enough episodes, and among the worst few of the fleet."""
    counts = {node: len(found) for node, found in by_node(merged(inside, _merge(config))).items()}
    most = int(config.largest_share * len(scores))
    enough = [each for each in scores if counts.get(each.node, 0) >= config.least_episodes]
    return enough[:most]


class Worth(NamedTuple):
    """How right a list of nodes was about later faults; None: it named none, or none came."""

    base_share: float | None
    right_share: float | None
    lift: float | None


def worth_of(named: Sequence[str], later: Sequence[Episode], fleet: int) -> Worth:
    """Return how right a list was.

    Parameters
    ----------
    named
        The nodes of the list.
    later
        Faults that came after it was made.
    fleet
        How many nodes there are.
    """
    if not fleet:
        return Worth(None, None, None)
    failed = by_node(later)
    base = len(failed) / fleet
    if not named or not later:
        return Worth(base, None, None)
    right = sum(node in failed for node in named) / len(named)
    rate = sum(len(failed.get(node, ())) for node in named) / len(named)
    return Worth(base, right, rate / (len(later) / fleet))


def _merge(config: LemonConfig) -> float:
    return config.merge_days * _DAY
