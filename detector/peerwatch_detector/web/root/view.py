"""What a job fails of, for a person: what to do first, why, and what was observed in its order."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from peerwatch_detector.diagnosis.root.answer import considered_text, no_cause_text, root_json
from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence, in_order
from peerwatch_detector.diagnosis.root.live.root import LiveRoot
from peerwatch_detector.diagnosis.root.published import told_causes
from peerwatch_detector.diagnosis.root.taxonomy.cause import Cause, names
from peerwatch_detector.diagnosis.root.text import summary_text, would_change
from peerwatch_detector.service.diagnoses import Diagnoses
from peerwatch_detector.web.ago import clock, date
from peerwatch_detector.web.root.diagram import Diagram, draw
from peerwatch_detector.web.root.timeline import TimelineRow, timeline

# What a person reads; the JSON has more. Rows about a diagnosis are never left out before others.
# Chosen: two screens; what speaks for a cause is cut where a terminal cuts it (root/answer.py).
MOST_ROWS, MOST_ROWS_IN_JSON = 60, 500
_MOST_FOR = 8
# The confidence of a suspicion.
AS_ITS_FINDING = "that of its finding"
# Characters of a log line in a row: two lines of the column.
_LONGEST_TEXT = 240
# Jobs that something stands against, at the same time. Chosen: far more than a fleet has.
_KEPT_JOBS = 64


@dataclass(frozen=True, slots=True)
class RowView:
    """A row of the timeline in words."""

    after: str
    clock: str
    source: str
    what: str
    says: str
    where: str
    text: str
    first_of: tuple[int, ...]
    speaks_for: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CauseView:
    """One diagnosis in words, with its number from 1."""

    number: int
    summary: str
    who: str
    symptom: str
    domain: str
    duration: str
    action: str
    confidence: str
    since: str
    rule: str
    speaks_for: tuple[str, ...]
    against: tuple[str, ...]
    would_change: str


@dataclass(frozen=True, slots=True)
class RootView:
    """What a job fails of, as the web UI shows it.

    Parameters
    ----------
    asked
        Unix time of which it is the answer.
    no_cause
        What is said of a job that fails where no cause is named; empty if nothing is wrong.
    causes
        The diagnoses.
    path, checks, missing, considered
        As of ``Root``, in sentences.
    rows
        The timeline; ``left_out`` rows more are only in the JSON.
    zero
        The moment from which its times count, in words.
    diagram
        The same as a picture; None if there are no two times to compare.
    """

    asked: float
    no_cause: str
    causes: tuple[CauseView, ...]
    path: tuple[tuple[str, str], ...]
    checks: tuple[str, ...]
    missing: tuple[str, ...]
    considered: tuple[str, ...]
    rows: tuple[RowView, ...]
    left_out: int
    zero: str
    diagram: Diagram | None


class RootViews:
    """Keeps the view of each job's last answer: it is made once for all who look."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[LiveRoot, frozenset[str], RootView]] = {}
        self._lock = threading.Lock()

    def get(self, found: LiveRoot | None, named: frozenset[str] = frozenset()) -> RootView | None:
        """Return the view of an answer, ``named`` as in ``root_view``; None without an answer."""
        if found is None:
            return None
        with self._lock:
            known = self._kept.pop(found.job_id, None)
            if known is None or known[0] is not found or known[1] != named:
                known = (found, named, root_view(found, named))
            self._kept[found.job_id] = known
            while len(self._kept) > _KEPT_JOBS:
                del self._kept[next(iter(self._kept))]
            return known[2]


def root_view(found: LiveRoot, named: frozenset[str] = frozenset()) -> RootView:
    """Return an answer in words.

    Parameters
    ----------
    found
        The answer.
    named
        Nodes that findings or verdicts name, shown below it: it must not contradict them.
    """
    no_cause = "" if found.root.episode.begun is None else no_cause_text(found.root)
    causes = told_causes(found, named)
    if len(causes) < len(found.root.causes):
        no_cause = (
            f"See what is said of {names(sorted(named))} below: nothing else that was observed "
            "decides whose fault it is."
        )
        found = replace(found, root=replace(found.root, causes=causes))
    rows, zero = root_rows(found), zero_of(found)
    shown = shown_rows(rows, MOST_ROWS)
    return RootView(
        found.time,
        no_cause,
        tuple(_cause(number, cause, found) for number, cause in enumerate(found.root.causes, 1)),
        tuple((step.name, step.result) for step in found.root.path),
        tuple(
            f"peerwatch-check {run.check} on {names(run.nodes, 8)}: {run.why}"
            for run in found.root.checks
        ),
        found.root.missing,
        tuple(considered_text(each) for each in found.root.considered),
        tuple(row_view(row, zero) for row in shown),
        len(rows) - len(shown),
        date(zero),
        draw(shown, zero),
    )


def root_of_job_json(diagnoses: Diagnoses | None, job_id: str) -> dict[str, Any] | None:
    """Return what a job fails of for programs, with its timeline; None if nobody asked."""
    found = None if diagnoses is None else diagnoses.roots.get(job_id)
    return None if found is None else root_and_timeline_json(found)


def root_and_timeline_json(found: LiveRoot) -> dict[str, Any]:
    """Return an answer for programs, as ``diagnose --json`` does, with its timeline."""
    rows, zero = root_rows(found), zero_of(found)
    shown = shown_rows(rows, MOST_ROWS_IN_JSON)
    return {
        **root_json(found.root, found.places),
        "time": found.time,
        "unanswered": list(found.unanswered),
        "timeline": [_row_json(row, zero) for row in shown],
        "timeline_left_out": len(rows) - len(shown),
    }


def offset(seconds: float) -> str:
    """Return how long after the zero of a timeline something was: "+4.2 s", "-12 min"."""
    sign, size = ("-" if seconds < 0 else "+"), abs(seconds)
    if size < 99.95:
        return f"{sign}{size:.1f} s"
    if size < 5400:
        return f"{sign}{size / 60:.0f} min"
    return f"{sign}{size / 3600:.1f} h"


def root_rows(found: LiveRoot) -> tuple[TimelineRow, ...]:
    """Return all that was observed as rows, with what speaks for which diagnosis."""
    causes = found.root.causes
    apart = {node for cause in causes for node in cause.nodes}
    return timeline(found.evidence, found.places, apart, [_evidence(cause) for cause in causes])


def _evidence(cause: Cause) -> list[Evidence]:
    """Return what speaks for a diagnosis, the first of it first."""
    return list(in_order(each.evidence for each in (cause.main, *cause.speaks_for)))


def zero_of(found: LiveRoot) -> float:
    """Return the time of the first sign of a diagnosis, else when the job began to suffer."""
    if found.root.causes:
        return min(cause.time for cause in found.root.causes)
    if found.root.episode.begun is not None:
        return found.root.episode.begun
    return found.evidence[0].time if found.evidence else found.time


def shown_rows(rows: Sequence[TimelineRow], most: int) -> tuple[TimelineRow, ...]:
    """Return the rows that are shown, in their order: those about a diagnosis, then the last."""
    if len(rows) <= most:
        return tuple(rows)
    first = [place for place, row in enumerate(rows) if row.first_of]
    about = [place for place, row in enumerate(rows) if row.speaks_for and not row.first_of]
    others = [place for place, row in enumerate(rows) if not row.speaks_for and not row.first_of]
    kept = sorted([*first, *about, *reversed(others)][:most])
    return tuple(rows[place] for place in kept)


def _cause(number: int, cause: Cause, found: LiveRoot) -> CauseView:
    seen = timeline(_evidence(cause), found.places, cause.nodes)
    zero = zero_of(found)
    speaks = [_sentence(row, zero) for row in seen[:_MOST_FOR]]
    if len(seen) > _MOST_FOR:
        speaks.append(f"{len(seen) - _MOST_FOR} more")
    return CauseView(
        number,
        summary_text(cause, found.root, found.places),
        cause.place or names(cause.nodes, 8),
        cause.symptom.replace("_", " "),
        cause.domain,
        cause.main.rule.duration,
        cause.action,
        AS_ITS_FINDING if cause.is_suspicion else cause.confidence,
        date(cause.time),
        f"{cause.main.rule.name}: {cause.main.rule.source}",
        tuple(speaks),
        cause.against,
        would_change(cause),
    )


def _sentence(row: TimelineRow, zero: float) -> str:
    view = row_view(row, zero)
    parts = [part for part in (view.where, view.says) if part]
    said = f": {view.text}" if view.text else ""
    return f"{view.after} {view.source}: {view.what} ({', '.join(parts)}){said}".strip()


def row_view(row: TimelineRow, zero: float) -> RowView:
    """Return a row in words; its times count from ``zero``."""
    return RowView(
        _span(row, zero),
        "" if row.time is None else clock(row.time),
        row.source,
        row.what,
        row.says or row.class_name,
        _where(row),
        _text(row),
        row.first_of,
        row.speaks_for,
    )


def _span(row: TimelineRow, zero: float) -> str:
    """Return from when to when, the end only where it is another."""
    if row.time is None or row.until is None:
        return ""
    begun, ended = offset(row.time - zero), offset(row.until - zero)
    return begun if ended == begun or row.until - row.time < 1 else f"{begun} to {ended}"


def _text(row: TimelineRow) -> str:
    """Return the first line, cut; empty if it only repeats what the row says."""
    if row.what.endswith(row.text):
        return ""
    return row.text if len(row.text) <= _LONGEST_TEXT else row.text[: _LONGEST_TEXT - 1] + "…"


def _where(row: TimelineRow) -> str:
    parts = [row.where] if row.where else []
    if row.count > max(1, len(row.ranks), len(row.gpus), len(row.devices), len(row.nodes)):
        parts.append(f"{row.count} times")
    if row.about:
        parts.append(f"about {names(row.about, 2)}")
    return ", ".join(parts)


def _row_json(row: TimelineRow, zero: float) -> dict[str, Any]:
    return {
        "time": row.time,
        "until": row.until,
        "after_seconds": None if row.time is None else round(row.time - zero, 3),
        "source": row.source,
        "name": row.what,
        "meaning": row.says,
        "class": row.class_name,
        "nodes": _some(row.nodes),
        "ranks": _some(row.ranks),
        "gpus": _some(row.gpus),
        "devices": _some(row.devices),
        "about": _some(row.about),
        "count": row.count,
        "text": row.text,
        "first_of": list(row.first_of),
        "speaks_for": list(row.speaks_for),
    }


# Of ten thousand ranks nobody reads all numbers; the count says how many there are. Chosen: as many
# as nodes are named elsewhere (config/majority.py).
_MOST_NAMES = 64


def _some(values: Iterable[object]) -> list[object]:
    return list(values)[:_MOST_NAMES]
