"""A node's own normal offset from its peers.

Healthy workers differ for good: rank 0 also logs, one host has slower disks. What counts is that
a node moves away from its usual offset, so the offset is learned from its own past, without the
seconds in which it was a candidate.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.similarity import Mask, Scores

# The offset is learned anew once in this many seconds, at whole multiples of it, so that the
# same samples give the same offsets however the cycles fall.
_PERIOD = 15
# A node is judged once this many seconds of its past are known.
_LEAST_SECONDS = 60


class Baseline:
    """Running offset of every node of one metric.

    Parameters
    ----------
    seconds
        Length of the past that counts; 0 switches the baseline off (offset 0 at once).
    """

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self.nodes: tuple[str, ...] = ()
        self._past: NDArray[np.float32] = np.full((0, seconds), np.nan, dtype=np.float32)
        self._learned: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._offset: NDArray[np.float64] = np.zeros(0)
        self._period = -1

    def follow(self, nodes: tuple[str, ...]) -> None:
        """Go on with these nodes: known ones keep their past, new ones begin without."""
        if nodes == self.nodes:
            return
        known = {node: index for index, node in enumerate(self.nodes)}
        past = np.full((len(nodes), self.seconds), np.nan, dtype=np.float32)
        learned = np.zeros(len(nodes), dtype=np.int64)
        offset = np.full(len(nodes), np.nan)
        for index, node in enumerate(nodes):
            if node in known:
                past[index] = self._past[known[node]]
                learned[index] = self._learned[known[node]]
                offset[index] = self._offset[known[node]]
        self.nodes, self._past, self._learned, self._offset = nodes, past, learned, offset

    def assume_like_peers(self, node: str) -> None:
        """Judge ``node`` as if it had no offset: of its past only faulty seconds are known."""
        if node in self.nodes and self.seconds:
            row = self.nodes.index(node)
            self._past[row], self._learned[row] = 0.0, self.seconds
            self._period = -1

    def periods(self, times: NDArray[np.int64]) -> Iterator[slice]:
        """Cut rising whole seconds into runs that share one offset."""
        cuts = np.flatnonzero(np.diff(times // _PERIOD)) + 1
        edges = [0, *cuts.tolist(), len(times)]
        for start, stop in pairwise(edges):
            yield slice(start, stop)

    def offset(self, time: int) -> NDArray[np.float64]:
        """Return the offsets in force at ``time``, shape (n_nodes,); NaN = not known yet."""
        if self.seconds == 0:
            return np.zeros(len(self.nodes))
        if time // _PERIOD != self._period:
            self._period = time // _PERIOD
            ready = self._learned >= min(_LEAST_SECONDS, self.seconds)
            self._offset = np.full(len(self.nodes), np.nan)
            if ready.any():
                self._offset[ready] = np.nanmedian(self._past[ready], axis=1)
        return self._offset

    def learn(self, times: NDArray[np.int64], residual: Scores, candidates: Mask) -> None:
        """Add the residuals of healthy seconds to the past.

        Parameters
        ----------
        times
            Whole Unix seconds, shape (n_steps,).
        residual
            Value minus the median of the others, shape (n_steps, n_nodes), NaN = not known.
        candidates
            Same shape; these seconds are left out.
        """
        if self.seconds == 0:
            return
        healthy = np.isfinite(residual) & ~candidates
        for step, time in enumerate(times):
            # A slot keeps its healthy second until another healthy one takes its place, so a
            # long fault cannot wash the healthy past out.
            here = healthy[step]
            self._past[here, time % self.seconds] = residual[step, here]
        self._learned += healthy.sum(axis=0)
