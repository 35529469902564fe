"""What the live detector said while cases were recorded, and how often it was right.

One JSON line for every case in ``live.jsonl``, appended as soon as the case is there, so that a
recording that breaks off loses nothing and the next one goes on where it ended. Findings outside
of any case, while the job recovers, have lines of their own.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from peerwatch_demo.stack.json_lines import append_line, read_lines
from peerwatch_demo.stack.watch import Fetch, fetch_json

HEALTHY = "healthy"

Outcome = Literal["right", "wrong", "missed"]


class RecordError(ValueError):
    """The folder of a recording cannot be used."""


@dataclass(frozen=True, slots=True)
class LiveFinding:
    """A finding of the live detector.

    Parameters
    ----------
    node, metric, severity
        As in the detector's answer.
    raised, seen
        Unix times: when the detector says it raised it, and when its answer showed it.
    """

    node: str
    metric: str
    severity: str
    raised: float
    seen: float


@dataclass(frozen=True, slots=True)
class Line:
    """One line of ``live.jsonl``.

    Parameters
    ----------
    kind
        ``fault`` and ``healthy`` for a case; ``stray`` for findings between two cases.
    round
        Number of the round, from 1; a round is one stack.
    fault, node
        What was done to whom; ``healthy`` and empty for a healthy case.
    case
        Name of the case's folder; empty if there is none.
    start, onset, end
        Unix times of the case; the onset is that of the injection.
    findings
        What the detector said from the onset (or start) to the end, in order.
    before
        What it said in the healthy stretch before the onset.
    load
        The machine's load average at the onset, as in ``/proc/loadavg``.
    steps_per_second
        How fast the job trained just before the onset.
    note
        What went wrong with the case; empty if nothing did.
    """

    kind: Literal["fault", "healthy", "stray"]
    round: int
    fault: str
    node: str
    case: str
    start: float
    onset: float
    end: float
    findings: tuple[LiveFinding, ...] = ()
    before: tuple[LiveFinding, ...] = ()
    load: str = ""
    steps_per_second: float = 0.0
    note: str = ""

    @property
    def outcome(self) -> Outcome:
        """Whether the detector named the faulty node and no other."""
        flagged = {finding.node for finding in (*self.before, *self.findings)}
        wrong = flagged if self.kind != "fault" else flagged - {self.node}
        if wrong or self.before:
            return "wrong"
        return "right" if flagged or self.kind != "fault" else "missed"

    @property
    def delay_seconds(self) -> float | None:
        """From the onset to the first finding that names the faulty node."""
        seen = [finding.seen for finding in self.findings if finding.node == self.node]
        return min(seen) - self.onset if seen else None


@dataclass
class LiveLog:
    """The file of lines.

    Parameters
    ----------
    path
        Need not exist.
    """

    path: Path
    lines: list[Line] = field(default_factory=list)

    def load(self) -> None:
        """Read what an earlier recording wrote; a last line that broke off is cut away.

        Raises
        ------
        RecordError
            If another line is no line of ours; it names the line.
        """
        advice = "give another folder or remove the line"
        try:
            self.lines = read_lines(self.path, _parsed, "a recording", advice)
        except ValueError as error:
            raise RecordError(str(error)) from error

    def add(self, line: Line) -> None:
        """Append a line at once."""
        self.lines.append(line)
        append_line(self.path, asdict(line))

    def done(self, number: int) -> set[str]:
        """Return the faults of a round that have their case."""
        return {line.fault for line in self.lines if line.round == number and line.kind != "stray"}


def _parsed(line: Mapping[str, Any]) -> Line:
    heard = {
        name: tuple(LiveFinding(**finding) for finding in line.get(name, ()))
        for name in ("findings", "before")
    }
    return Line(**{**line, **heard})


class Listener:
    """Asks the detector what stands, and keeps every finding once.

    Parameters
    ----------
    detector
        Its base URL.
    clock
        Unix time.
    fetch
        Reads a URL.
    """

    def __init__(
        self, detector: str, clock: Callable[[], float], fetch: Fetch = fetch_json
    ) -> None:
        self.standing: set[str] = set()
        self.unanswered = 0
        self._url = f"{detector}/api/v1/jobs"
        self._clock = clock
        self._fetch = fetch
        self._known: set[tuple[str, str, float]] = set()

    def poll(self) -> list[LiveFinding]:
        """Return the findings that are new; ``standing`` names the nodes of all that stand.

        A detector that does not answer leaves what stood; ``unanswered`` counts in a row.
        """
        answer = self._fetch(self._url)
        if answer is None:
            self.unanswered += 1
            return []
        self.unanswered = 0
        new = []
        found = [finding for job in answer["jobs"] for finding in job["findings"]]
        self.standing = {finding["node"] for finding in found}
        for finding in found:
            key = (finding["node"], finding["metric"], float(finding["raised"]))
            if key not in self._known:
                self._known.add(key)
                heard = LiveFinding(key[0], key[1], str(finding["severity"]), key[2], self._clock())
                new.append(heard)
        return new


def table(lines: Iterable[Line]) -> str:
    """Return how often the live detector was right, a row for each fault, in Markdown."""
    rows = ["| fault | runs | right | wrong | missed | median delay | p90 |", "|---|" + "---|" * 6]
    by_fault: dict[str, list[Line]] = {}
    stray = 0
    for line in lines:
        if line.kind == "stray":
            stray += len(line.findings)
        else:
            by_fault.setdefault(line.fault, []).append(line)
    for fault, runs in sorted(by_fault.items(), key=lambda item: (item[0] == HEALTHY, item[0])):
        counts = [sum(run.outcome == word for run in runs) for word in ("right", "wrong", "missed")]
        delays = [run.delay_seconds for run in runs if run.delay_seconds is not None]
        delay = f"{statistics.median(delays):.0f} s | {p90(delays):.0f} s" if delays else " | "
        rows.append(f"| {fault} | {len(runs)} | {' | '.join(map(str, counts))} | {delay} |")
    rows.append(f"\nFindings between the cases, while the job recovered: {stray}")
    return "\n".join(rows)


def p90(values: Sequence[float]) -> float:
    """Return the 90th percentile, interpolated between the two nearest values."""
    ordered = sorted(values)
    place = 0.9 * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
