"""Links that keep what was chosen: the time range, and the variables that both dashboards have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard as models

from parts import properties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grafana_foundation_sdk.cog.builder import Builder

UIDS = {
    name: f"peerwatch-{name}"
    for name in ("fleet", "job", "node", "fabric", "detector", "reliability")
}
TAG = "peerwatch"

_TIME = "${__url_time_range}"
_LINK = re.compile(rf'(/d/([\w-]+)\?{re.escape(_TIME)})([^"]*)')
# The same label as a series' own and as the field of a table's row.
_SERIES, _ROW = "${__field.labels.%s}", "${__data.fields.%s}"
Override = list[models.DynamicConfigValue]


def all_dashboards() -> builders.DashboardLink:
    """Return the menu at the top that leads to every dashboard of Peerwatch."""
    return (
        builders.DashboardLink("Peerwatch")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .keep_time(True)
        .include_vars(True)
    )


def series_to(dashboard: str, *variables: str) -> list[Builder[models.DashboardLink]]:
    """Return the links of a graph's series; their labels fill the dashboard's variables."""
    return [builders.DashboardLink(_title(dashboard)).url(_url(dashboard, _SERIES, variables))]


def column_to(dashboard: str, **headings: str) -> Override:
    """Return the override of a table's column that leads to a dashboard.

    Parameters
    ----------
    dashboard
        Its name.
    headings
        For each variable of it the heading of the column with its value; a heading is one word.
    """
    url = _url(dashboard, _ROW, tuple(headings), headings)
    return properties({"links": [{"title": _title(dashboard), "url": url}]})


def hand_on(text: str, uid: str, variables: Mapping[str, Sequence[str]]) -> str:
    """Return a dashboard whose links hand on every variable that the other has too, as chosen.

    Parameters
    ----------
    text
        Its JSON.
    uid
        Whose it is.
    variables
        Of every dashboard, by uid.
    """

    def complete(link: re.Match[str]) -> str:
        begin, other, values = link.groups()
        # What this dashboard does not have would stand in the address as it is written here.
        shared = [name for name in variables[uid] if name in variables[other]]
        chosen = [name for name in shared if f"&var-{name}=" not in values]
        return begin + "".join(f"&${{{name}:queryparam}}" for name in chosen) + values

    return _LINK.sub(complete, text)


def _title(dashboard: str) -> str:
    return f"Open the {dashboard}'s dashboard"


def _url(
    dashboard: str, source: str, variables: tuple[str, ...], names: dict[str, str] | None = None
) -> str:
    values = "".join(
        f"&var-{variable}={source % (names or {}).get(variable, variable)}"
        for variable in variables
    )
    return f"/d/{UIDS[dashboard]}?{_TIME}{values}"
