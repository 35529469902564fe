"""An incident as plain text, to paste into a ticket."""

from __future__ import annotations

from peerwatch_detector.web.incident.view import IncidentView
from peerwatch_detector.web.root.view import RowView

# Of the timeline. Chosen: the text goes into a chat or a mail, where it is still one screen.
_MOST_ROWS = 25


def as_text(view: IncidentView, address: str) -> str:
    """Return the incident as text.

    Parameters
    ----------
    view
        The incident in words.
    address
        Where its view is.
    """
    parts = [view.headline, "", *(f"{name}: {text}" for name, text in view.facts)]
    parts += [f"state: {view.state}", f"web UI: {address}"]
    if view.steps:
        parts += ["", "What to do:", *(f"{place}. {text}" for place, text in _numbered(view.steps))]
    if view.rows:
        parts += ["", f"Timeline (0 is {view.zero}):"]
        parts += [_line(row) for row in view.rows[:_MOST_ROWS]]
        if (more := len(view.rows) + view.left_out - _MOST_ROWS) > 0:
            parts.append(f"... {more} more")
    if view.affected:
        parts += ["", "Metrics that deviate:"]
        parts += [f"- {each.title} since {each.since}" for each in view.affected]
    if view.wait_rows:
        parts += ["", "Who waits for whom:"]
        parts += [
            f"- {wait.who} in {wait.at}: wait for {wait.whom or ''} {wait.why}".replace("  ", " ")
            for wait in view.wait_rows
        ]
    if view.missing:
        parts += ["", "Missing:", *(f"- {text}" for text in view.missing)]
    return "\n".join(parts) + "\n"


def _numbered(steps: tuple[str, ...]) -> list[tuple[int, str]]:
    return list(enumerate(steps, 1))


def _line(row: RowView) -> str:
    says = f" ({row.says})" if row.says else ""
    text = f": {row.text}" if row.text else ""
    where = f" [{row.where}]" if row.where else ""
    return f"{row.after or 'unknown':>10}  {row.clock}  {row.source}: {row.what}{says}{where}{text}"
