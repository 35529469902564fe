"""What is read: which series, on which steps, and in which pieces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from peerwatch_common.promql import quoted

Operator = Literal["=", "!=", "=~", "!~"]

# Below this many steps it is the number of series that is too large, not the range. Chosen: servers
# allow thousands of steps, and a minute of seconds is less than anything evaluated.
_FEW_STEPS = 60


@dataclass(frozen=True, slots=True)
class Matcher:
    """One label matcher, as between the braces of a selector."""

    label: str
    operator: Operator
    value: str

    def __str__(self) -> str:
        return f"{self.label}{self.operator}{quoted(self.value)}"


@dataclass(frozen=True, slots=True)
class Selection:
    """The series of one metric of one training job.

    Parameters
    ----------
    metric
        What the result is called; the name of a detection metric.
    series
        Name of the series in the server; with ``expression`` it is not used.
    matchers
        Further label matchers.
    rate_seconds
        The series are counters, and their rate per second over so many seconds is wanted. None for
        gauges. Both ends of a rate must be present; a counter that fell began again at 0.
    expression
        PromQL to evaluate at every step instead of reading series; only ``query_range`` can.
    node_label, gpu_label
        Labels that name the node and, if there is one, its GPU.
    by_node
        The series tell no training job: only those of the job's nodes are read.
    """

    metric: str
    series: str
    matchers: tuple[Matcher, ...] = ()
    rate_seconds: int | None = None
    expression: str | None = None
    node_label: str = "node"
    gpu_label: str = "gpu"
    by_node: bool = False

    @property
    def selector(self) -> str:
        """The selector in PromQL."""
        return f"{self.series}{{{','.join(str(matcher) for matcher in self.matchers)}}}"

    def of_nodes(self, nodes: Sequence[str]) -> Selection:
        """Return the selection narrowed to some nodes."""
        names = "|".join(re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", node) for node in nodes)
        return replace(self, matchers=(*self.matchers, Matcher(self.node_label, "=~", names)))


@dataclass(frozen=True, slots=True)
class Grid:
    """Regular steps, all ends included; milliseconds since 1970, multiples of the step."""

    start: int
    end: int
    step: int = 1000

    def __post_init__(self) -> None:
        if self.step <= 0 or self.start % self.step or self.end % self.step:
            raise ValueError(f"{self!r} is not on multiples of a positive step; round its ends.")
        if self.end < self.start:
            raise ValueError(f"{self!r} ends before it starts.")

    @classmethod
    def of_seconds(cls, start: float, end: float, step: float = 1.0) -> Grid:
        """Return the steps that lie between two Unix times in seconds."""
        width = round(step * 1000)
        first = -(-round(start * 1000) // width) * width
        return cls(first, round(end * 1000) // width * width, width)

    @property
    def steps(self) -> int:
        """How many there are."""
        return (self.end - self.start) // self.step + 1

    @property
    def times(self) -> NDArray[np.float64]:
        """Unix seconds of the steps, shape (n_steps,)."""
        return np.arange(self.start, self.end + 1, self.step) / 1000

    def halves(self) -> tuple[Grid, Grid]:
        """Return the earlier and the later half; there must be two steps."""
        middle = self.start + (self.steps // 2) * self.step
        return replace(self, end=middle - self.step), replace(self, start=middle)

    def cut(self, most: int) -> list[Grid]:
        """Return consecutive parts of at most so many steps, as equal as can be."""
        parts = -(-self.steps // most)
        edges = [self.start + self.steps * part // parts * self.step for part in range(parts + 1)]
        return [Grid(left, right - self.step, self.step) for left, right in pairwise(edges)]


@dataclass(frozen=True, slots=True)
class SelectionPart:
    """As much of a selection as one request asks for.

    Parameters
    ----------
    selection, grid
        What, and on which steps.
    nodes
        The nodes that the request names, or None for all.
    known_nodes
        The nodes that there are, as far as the caller knows: what a part can be split by.
    """

    selection: Selection
    grid: Grid
    nodes: tuple[str, ...] | None = None
    known_nodes: tuple[str, ...] = ()

    @property
    def asked(self) -> Selection:
        """The selection, narrowed to the nodes of the part."""
        nodes = self.known_nodes if self.selection.by_node and self.nodes is None else self.nodes
        return self.selection if nodes is None else self.selection.of_nodes(nodes)

    def split(self) -> tuple[SelectionPart, SelectionPart] | None:
        """Return two halves by time, or by nodes when the range is short; None if neither can."""
        nodes = self.known_nodes if self.nodes is None else self.nodes
        if self.selection.expression is not None:
            nodes = ()
        if self.grid.steps > (_FEW_STEPS if len(nodes) > 1 else 1):
            early, late = self.grid.halves()
            return replace(self, grid=early), replace(self, grid=late)
        if len(nodes) > 1:
            middle = len(nodes) // 2
            return replace(self, nodes=nodes[:middle]), replace(self, nodes=nodes[middle:])
        return None
