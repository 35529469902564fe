"""Who waits for whom in the collectives of a job: the waits-for graph as a picture and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from html import escape

from peerwatch_detector.diagnosis.collectives.hang.hang import hangs
from peerwatch_detector.diagnosis.collectives.hang.waits_for import Reason, Wait, waits_for
from peerwatch_detector.diagnosis.collectives.series import Reading, read
from peerwatch_detector.diagnosis.collectives.snapshot import StableCounts
from peerwatch_detector.diagnosis.diagnoser import Samples

# Healthy ranks wait, too, but not for so long (seconds). Chosen: below the 30 s from which on a
# hang is a finding, so that its incident shows who waits, and above a scrape of 15 s.
_LEAST_SECONDS = 20.0
# Rows, and ranks in one. Chosen: a screen of rows of 54 units; four ranks with their nodes fit.
MOST_WAITS = 10
_NAMED = 4
# In units of the view box: two boxes, and an arrow between them.
_WIDTH, _BOX, _ROW = 760, 300, 54

_FOR: Mapping[Reason, str] = {
    "launch": "have not launched it",
    "start": "launched it, but their device has not started it",
    "mismatch": "nobody: the ranks called different collectives",
    "network": "nobody: all have started it, the network does not end it",
    "order": "what comes before it on their devices",
}


@dataclass(frozen=True, slots=True)
class WaitView:
    """One collective that ranks stand in.

    Parameters
    ----------
    who
        The ranks that wait.
    at
        Which collective.
    whom
        The ranks that they wait for; empty where they wait for nobody.
    why
        What those have not done.
    is_root
        Whether all that wait, directly or through others, wait for them in the end.
    """

    who: str
    at: str
    whom: str
    why: str
    is_root: bool


def waits_of(before: Samples, samples: Samples, time: float, seconds: float) -> list[WaitView]:
    """Return who waits for whom at one moment; nothing of a job that gets on.

    Parameters
    ----------
    before, samples
        Answers to ``diagnosis.collectives.series.QUERIES`` some seconds earlier, and then: who
        got on in between waits for nobody.
    time
        Unix time of ``samples``.
    seconds
        How much earlier.
    """
    stable = StableCounts()
    earlier = read(before, time - seconds)
    if earlier is not None:
        stable.update(earlier.snapshot, earlier.read_at)
    reading = read(samples, time)
    if reading is None or max(reading.ages.values(), default=0.0) < _LEAST_SECONDS:
        return []
    snapshot = stable.update(reading.snapshot, reading.read_at)
    edges = waits_for(snapshot)
    roots = {rank for root in hangs(snapshot) for rank in root.ranks}
    waits = [vertex for vertex in edges if isinstance(vertex, Wait)]
    waiting: dict[Wait, list[int]] = {wait: [] for wait in waits}
    for vertex, successors in edges.items():
        for successor in successors:
            if isinstance(vertex, int) and isinstance(successor, Wait):
                waiting[successor].append(vertex)
    waits.sort(key=lambda wait: (-len(waiting[wait]), wait))
    return [
        _view(wait, waiting[wait], _ranks(edges[wait]), reading, roots)
        for wait in waits[:MOST_WAITS]
    ]


def _ranks(vertices: Sequence[object]) -> list[int]:
    return sorted(vertex for vertex in vertices if isinstance(vertex, int))


def _view(
    wait: Wait, who: list[int], whom: list[int], reading: Reading, roots: AbstractSet[int]
) -> WaitView:
    group = reading.snapshot.groups[wait.group]
    called = group.description or wait.group
    return WaitView(
        _names(who, reading),
        f"collective {wait.sequence} of group {called} ({len(group.members)} ranks)",
        _names(whom, reading) if whom else "",
        _FOR[wait.reason],
        not roots.isdisjoint(whom),
    )


def _names(ranks: Sequence[int], reading: Reading) -> str:
    named = [f"rank {rank} ({reading.nodes.get(rank) or 'gone'})" for rank in ranks[:_NAMED]]
    more = len(ranks) - len(named)
    text = ", ".join(named) + (f" and {more} more" if more else "")
    return text if len(ranks) < 2 else f"{len(ranks)} ranks: {text}"


def waits_svg(waits: Sequence[WaitView]) -> str:
    """Return the graph as an ``svg`` element: left waits for right, red is the root."""
    height = _ROW * len(waits)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        'aria-label="Who waits for whom; the table below says the same" '
        'font-family="system-ui, DejaVu Sans, sans-serif" font-size="11">'
    ]
    for place, wait in enumerate(waits):
        y = _ROW * place
        colour = "var(--bad)" if wait.is_root else "var(--peer)"
        parts.append(_box(0, y, [_cut(wait.who), _cut(wait.at)], "var(--peer)"))
        parts.append(
            f'<path d="M{_BOX} {y + 22}H{_WIDTH - _BOX - 8}m-7 -5l7 5l-7 5" fill="none" '
            f'stroke="{colour}" stroke-width="1.6"/>'
            f'<text x="{_WIDTH // 2}" y="{y + 15}" text-anchor="middle" fill="var(--soft)">'
            "waits for</text>"
        )
        lines = [_cut(wait.whom), _cut(wait.why)] if wait.whom else [_cut(wait.why)]
        parts.append(_box(_WIDTH - _BOX, y, lines, colour))
    return "".join([*parts, "</svg>"])


def _cut(text: str) -> str:
    return text if len(text) <= 50 else text[:49] + "…"


def _box(x: int, y: int, lines: Sequence[str], colour: str) -> str:
    texts = "".join(
        f'<text x="{x + 8}" y="{y + 19 + 14 * number}" fill="var(--ink)">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    return (
        f'<rect x="{x + 1}" y="{y + 3}" width="{_BOX - 2}" height="40" rx="4" fill="none" '
        f'stroke="{colour}" stroke-width="1.4"/>{texts}'
    )
