"""What came of each run: one JSON line each, and the table of all."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from peerwatch_demo.stack.json_lines import append_line, read_lines

HEALTH = "health"


@dataclass(frozen=True, slots=True)
class Said:
    """A finding or a verdict that the detector showed.

    Parameters
    ----------
    seconds
        From the fault (or the begin) until it was seen.
    kind
        ``finding`` or ``verdict``.
    node, rank
        Whom it names; empty and None for nobody.
    class_name
        Metric of a finding, class of a verdict.
    confidence
        Of a verdict; of a finding its severity.
    """

    seconds: float
    kind: str
    node: str
    rank: int | None
    class_name: str
    confidence: str

    @property
    def names(self) -> bool:
        """Whether it accuses somebody: what is undecided does not."""
        return bool(self.node) and self.confidence != "undecided"


@dataclass(frozen=True, slots=True)
class Run:
    """One fault done once, or a stretch of health.

    Parameters
    ----------
    fault, repeat
        Which, and the how manieth time, from 1.
    ranks, node
        Size of the job, and to which node it was done.
    classes, blames_node
        What would be right; see ``LiveFault``.
    seconds
        How long it was listened.
    said
        In order.
    load
        The machine's load average.
    """

    fault: str
    repeat: int
    ranks: int
    node: str
    classes: tuple[str, ...]
    blames_node: bool
    seconds: float
    said: tuple[Said, ...]
    load: str = ""

    @property
    def right_node(self) -> bool:
        """Whether exactly the faulty node was named; nobody where no node is at fault."""
        findings = [item for item in self.said if item.kind == "finding"]
        if self.blames_node:
            return {item.node for item in findings} == {self.node}
        # A warning says where the program failed, and that the node is not at fault.
        return all(item.confidence == "warning" for item in findings)

    @property
    def right_class(self) -> bool:
        """Whether a right class was said, and of no other node."""
        return any(self._is_right(item) for item in self.said)

    @property
    def delay_seconds(self) -> float | None:
        """Seconds to the first finding that names the node; for code, to the right verdict."""
        right = [
            item.seconds
            for item in self.said
            if (
                item.kind == "finding" and item.node == self.node
                if self.blames_node
                else self._is_right(item)
            )
        ]
        return min(right, default=None)

    def _is_right(self, item: Said) -> bool:
        known = item.class_name in self.classes
        return known and (not self.blames_node or item.node == self.node)


class RunLog:
    """The file of lines; a line is written when its run is over.

    Parameters
    ----------
    path
        Need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.runs: list[Run] = []

    def load(self) -> None:
        """Read what an earlier evaluation wrote; a last line that broke off is cut away.

        Raises
        ------
        ValueError
            If another line is none of ours; it names the line.
        """
        self.runs = read_lines(self._path, _run, "a live evaluation", "give another file")

    def add(self, run: Run) -> None:
        """Append a line at once."""
        self.runs.append(run)
        append_line(self._path, asdict(run))

    def has(self, fault: str, repeat: int) -> bool:
        """Return whether this was done already."""
        return any((run.fault, run.repeat) == (fault, repeat) for run in self.runs)


def _run(document: dict[str, Any]) -> Run:
    said = tuple(Said(**item) for item in document.pop("said"))
    return Run(**{**document, "classes": tuple(document["classes"])}, said=said)


def table(runs: Iterable[Run]) -> str:
    """Return the results in Markdown: a row for each fault, then all, then health."""
    by_fault: dict[str, list[Run]] = {}
    for run in runs:
        by_fault.setdefault(run.fault, []).append(run)
    health = by_fault.pop(HEALTH, [])
    rows = [
        "| fault | runs | right node | right class | seconds to finding, median / longest |",
        "|---|---|---|---|---|",
        *(_row(fault, found) for fault, found in by_fault.items()),
    ]
    if all_runs := [run for found in by_fault.values() for run in found]:
        rows.append(_row("all", all_runs))
    for run in health:
        accused = [item for item in run.said if item.names or item.kind == "finding"]
        rows.append(
            f"\nHealth: {run.seconds / 60:.0f} minutes of {run.ranks} ranks with checkpoints, "
            f"evaluations and pauses: {len(accused)} findings and verdicts"
            + "".join(f"; {item.class_name} on {item.node}" for item in accused[:10])
            + "."
        )
    return "\n".join(rows)


def _row(name: str, runs: list[Run]) -> str:
    delays = [run.delay_seconds for run in runs if run.delay_seconds is not None]
    delay = f"{statistics.median(delays):.0f} / {max(delays):.0f}" if delays else "-"
    nodes, classes = sum(run.right_node for run in runs), sum(run.right_class for run in runs)
    return f"| {name} | {len(runs)} | {nodes} | {classes} | {delay} |"
