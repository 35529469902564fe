"""Each node's share of its job's traffic, and whether it keeps the job's rhythm, minute by minute.

Where one rank hangs, the traffic of all nodes falls alike and their shares stay as they are: what
is found here is a node that differs from its peers.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.diagnosis.traffic.job_traffic import NodeTraffic, TrafficState
from peerwatch_detector.diagnosis.traffic.period import strengths_at
from peerwatch_detector.diagnosis.traffic.recent import Recent, carried

# As long as the shortest mean of a level (watch.py), so that each block has samples of its own.
BLOCK_SECONDS = 60.0
# Blocks remembered: an hour's, as of the job's level; and how many of them make a usual share: the
# ten minutes of LEAST_SECONDS in level.py.
_MEMORY, _LEAST_BLOCKS = 60, 10
# A node has fallen from this share of its usual one on, as a job has (level.py), for so many blocks
# in a row: the four minutes of statistics (``continuity.threshold_seconds``).
_FALLEN_SHARE, _LASTING_BLOCKS = 0.5, 4
# It must also be as far below as so many times the median by which its share varies. Chosen: more
# than three standard deviations (1.4826 such medians each).
_SPREADS = 5.0
# What more of the nodes show is the job's doing, or another job's. Chosen: a tenth, one of a small
# job; and no more tickets at once than somebody looks at.
_MOST_SHARE, _MOST_NODES = 0.1, 8
# Fewer have no majority to differ from.
_LEAST_NODES = 3


class NodeShares:
    """Follows the nodes of one job.

    Parameters
    ----------
    nodes
        Their names, in the order of the rows that are taken in.
    window_seconds
        How long a time is examined for a rhythm.
    least_strength
        The autocorrelation from which on a node has one.
    """

    def __init__(
        self, nodes: tuple[str, ...], window_seconds: float, least_strength: float
    ) -> None:
        self.nodes = nodes
        self._window_seconds, self._least_strength = window_seconds, least_strength
        self._shares: deque[NDArray[np.float64]] = deque(maxlen=_MEMORY)
        self._strengths: deque[NDArray[np.float64]] = deque(maxlen=_MEMORY)
        self._fallen, self._irregular = np.zeros(len(nodes)), np.zeros(len(nodes))
        self._ratios = np.full(len(nodes), np.nan)
        self._until = 0.0

    def update(
        self, recent: Recent, mean_seconds: float, job_level: float, period_seconds: float | None
    ) -> None:
        """Take in a block.

        Parameters
        ----------
        recent
            The nodes' levels up to its end.
        mean_seconds, job_level
            A level is the mean of so long; that of the job, in bytes per second.
        period_seconds
            The job's rhythm; None if it has none.
        """
        if recent.newest is None:
            return
        self._until = recent.newest * recent.step_seconds
        window = carried(recent.last(self._window_seconds), recent.step_seconds)
        present = window[:, -max(1, round(mean_seconds / recent.step_seconds)) :]
        shares = _mean(present) / job_level
        usual = _usual(self._shares, len(shares))
        self._ratios = np.divide(shares, usual, out=np.full_like(shares, np.nan), where=usual > 0)
        spread = _median(np.abs(np.array([*self._shares, shares]) - usual))
        low = (self._ratios < _FALLEN_SHARE) & (shares < usual - _SPREADS * spread)
        # What has fallen does not become usual, for as long as anything of before is remembered.
        self._shares.append(np.where(low, np.nan, shares))
        self._fallen = np.where(low, self._fallen + 1, 0)
        if period_seconds is None:
            self._irregular[:] = 0
            return
        strengths = strengths_at(window, period_seconds, recent.step_seconds)
        usual = _usual(self._strengths, len(strengths))
        lost = (usual >= self._least_strength) & (strengths < 0.5 * self._least_strength)
        self._strengths.append(np.where(lost, np.nan, strengths))
        self._irregular = np.where(lost, self._irregular + 1, 0)

    def pause(self) -> None:
        """Leave out a block in which the whole job sent less than usual."""
        self._fallen[:] = 0
        self._irregular[:] = 0

    def changed(self) -> tuple[NodeTraffic, ...]:
        """Return the nodes whose traffic changed alone, in order of name."""
        # A window must lie wholly in the time without rhythm, and some blocks after it.
        lasting = self._window_seconds / BLOCK_SECONDS + _LASTING_BLOCKS
        found = [
            *self._named(self._fallen, _LASTING_BLOCKS, "fallen"),
            *self._named(self._irregular, lasting, "irregular"),
        ]
        return tuple({each.node: each for each in reversed(found)}.values())

    def _named(
        self, blocks: NDArray[np.float64], least: float, state: TrafficState
    ) -> list[NodeTraffic]:
        rows = np.flatnonzero(blocks >= least)
        most = min(_MOST_NODES, max(1, _MOST_SHARE * len(self.nodes)))
        if len(self.nodes) < _LEAST_NODES or len(rows) > most:
            return []
        return [
            NodeTraffic(
                self.nodes[row],
                state,
                float(self._ratios[row]),
                self._until - float(blocks[row]) * BLOCK_SECONDS,
            )
            for row in rows
        ]


def _usual(blocks: deque[NDArray[np.float64]], nodes: int) -> NDArray[np.float64]:
    """Return the median over the blocks, by node; NaN where too few are known."""
    if len(blocks) < _LEAST_BLOCKS:
        return np.full(nodes, np.nan)
    return _median(np.array(blocks))


def _median(blocks: NDArray[np.float64]) -> NDArray[np.float64]:
    ranked = np.sort(blocks, axis=0)
    count = np.isfinite(ranked).sum(axis=0)
    middle = ranked[np.maximum(count - 1, 0) // 2, np.arange(ranked.shape[1])]
    median: NDArray[np.float64] = np.where(count >= _LEAST_BLOCKS, middle, np.nan)
    return median


def _mean(levels: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return each node's mean; NaN where less than half is known."""
    known = np.isfinite(levels)
    count = known.sum(axis=1)
    total = np.where(known, levels, 0).sum(axis=1, dtype=np.float64)
    enough = 2 * count >= levels.shape[1]
    mean = np.full(len(levels), np.nan)
    np.divide(total, count, out=mean, where=enough & (count > 0))
    return mean
