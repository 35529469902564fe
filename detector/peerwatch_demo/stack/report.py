"""What happened, in order; whether it is right; and the table at the end. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from peerwatch_demo.stack.webhook import Notification

Kind = Literal["fault", "candidate", "finding", "alert", "page"]

_WORDS: dict[Kind, str] = {
    "fault": "fault injected",
    "candidate": "candidate",
    "finding": "finding",
    "alert": "alert fires",
    "page": "page",
}


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened: what, when (Unix time), to which node, by which metric."""

    kind: Kind
    at: float
    node: str
    metric: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the demo showed what it should, and why in words."""

    right: bool
    sentence: str


def decisive(events: Sequence[Event]) -> list[Event]:
    """Return the chain that led to the first page, in the order of the table.

    The candidate is the one whose deviation became the finding: the last of that node and metric
    to begin before it. What came before the fault is no part of the chain.
    """
    fault = next((event for event in events if event.kind == "fault"), None)
    if fault is None:
        return []
    after = [event for event in events if event.at >= fault.at and event is not fault]
    finding = next((event for event in after if event.kind == "finding"), None)
    chain = [fault]
    if finding is not None:
        began = [
            event
            for event in after
            if event.kind == "candidate"
            and (event.node, event.metric) == (finding.node, finding.metric)
            and event.at <= finding.at
        ]
        chain += [*began[-1:], finding]
    else:
        chain += [event for event in after if event.kind == "candidate"][:1]
    for kind in ("alert", "page"):
        chain += [event for event in after if event.kind == kind][:1]
    return chain


def table(events: Sequence[Event]) -> str:
    """Return the table of the decisive events with the seconds between them."""
    chain = decisive(events)
    rows = [("", "after the fault", "after the line above", "node", "metric")]
    for previous, event in zip([None, *chain], chain, strict=False):
        rows.append(
            (
                _WORDS[event.kind],
                f"{event.at - chain[0].at:.1f} s",
                "" if previous is None else f"{event.at - previous.at:.1f} s",
                event.node,
                event.metric,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), row[1].rjust(widths[1]), row[2].rjust(widths[2])]
        cells += [row[3].ljust(widths[3]), row[4].ljust(widths[4])]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def evaluate(faulty: str, injected: float, pages: Sequence[Notification]) -> Verdict:
    """Say whether exactly one page came, after the fault, and named the faulty node alone."""
    if not pages:
        return Verdict(False, f"WRONG: no page came; faulty was {faulty}.")
    flagged = ", ".join(pages[0].nodes()) or "nobody"
    if pages[0].arrived < injected:
        return Verdict(False, f"WRONG: a page came before the fault and named {flagged}.")
    if pages[0].nodes() != (faulty,):
        return Verdict(False, f"WRONG: the page named {flagged}; faulty was {faulty}.")
    if len(pages) > 1:
        return Verdict(False, f"WRONG: {len(pages)} pages came instead of one.")
    return Verdict(True, f"RIGHT: one page came, and it named {faulty}, the faulty node.")


def evaluate_each(faulty: Sequence[str], injected: float, pages: Sequence[Notification]) -> Verdict:
    """Say whether exactly one page came about each of several faulty nodes, and no other."""
    named = [", ".join(page.nodes()) or "nobody" for page in pages]
    said = f"named were {'; '.join(named) or 'nobody'}"
    early = [who for who, page in zip(named, pages, strict=True) if page.arrived < injected]
    wrong = [who for who in named if who not in faulty]
    missed = [node for node in faulty if node not in named]
    several = [node for node in faulty if named.count(node) > 1]
    for who, problem in (
        (early, "a page came before the faults and named"),
        (wrong, "a page named, beside the faulty nodes or in their place,"),
        (missed, "no page came about"),
        (several, "more than one page came about"),
    ):
        if who:
            return Verdict(False, f"WRONG: {problem} {', '.join(who)}; {said}.")
    return Verdict(True, f"RIGHT: one page came about each of {', '.join(faulty)}, and no other.")
