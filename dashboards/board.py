"""Puts rows of panels together to a dashboard; what all dashboards have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard as models

from links import TAG, UIDS, all_dashboards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grafana_foundation_sdk.cog.builder import Builder

    from parts import Panel

_COLUMNS = 24


def board(
    name: str,
    title: str,
    description: str,
    variables: Sequence[Builder[models.VariableModel]],
    sections: dict[str, Sequence[Panel]],
    annotations: Sequence[Builder[models.AnnotationQuery]] = (),
    *,
    since: str = "now-30m",
) -> models.Dashboard:
    """Return a dashboard that nobody can edit in place.

    Parameters
    ----------
    name
        Of its file and, behind a prefix, its uid.
    title, description
        For people.
    variables
        The first is the data source.
    sections
        Panels by the title of their row.
    annotations
        Events that are drawn into every graph.
    since
        Start of the time range that is shown first.
    """
    dashboard = (
        builders.Dashboard(f"Peerwatch / {title}")
        .uid(UIDS[name])
        .description(description)
        .tags([TAG])
        .readonly()
        .timezone("browser")
        .time(since, "now")
        .refresh("30s")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(all_dashboards())
        .annotations(list(annotations))
        .variables(list(variables))
    )
    # Links and diffs need ids that stay: a panel added to one row renumbers no other row.
    ids = []
    for base, (heading, panels) in enumerate(sections.items(), start=1):
        dashboard = dashboard.with_row(builders.Row(heading))
        for panel in panels:
            dashboard = dashboard.with_panel(panel)
        ids += [100 * base + index for index in range(len(panels) + 1)]
    built = dashboard.build()
    made = built.panels or []
    for panel, panel_id in zip(made, ids, strict=True):
        panel.id_val = panel_id
    _place([panel.grid_pos for panel in made if panel.grid_pos is not None])
    return built


def _place(places: Sequence[models.GridPos]) -> None:
    """Put panels side by side in lines, as wide and high as they are; what does not fit wraps."""
    x = y = height = 0
    for place in places:
        if x + place.w > _COLUMNS:
            x, y, height = 0, y + height, 0
        place.x, place.y = x, y
        x, height = x + place.w, max(height, place.h)


def in_lines(panels: Sequence[Panel], at_most: int = 3) -> list[Panel]:
    """Return panels as wide as fills every line, however many there are.

    Parameters
    ----------
    panels
        All of one height.
    at_most
        On a line; with one left over, the last two lines share what they have.
    """
    return [
        panel.span(_COLUMNS // width)
        for panel, width in zip(panels, line_lengths(len(panels), at_most), strict=True)
    ]


def line_lengths(count: int, at_most: int) -> list[int]:
    """Return for each of so many panels how many share its line; lines differ by one at most."""
    lines = -(-count // at_most)
    longer = count - (count // max(1, lines)) * lines
    lengths = [count // max(1, lines) + (line < longer) for line in range(lines)]
    return [length for length in lengths for _ in range(length)]
