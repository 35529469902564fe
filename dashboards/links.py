"""Links that keep what was chosen: the time range, the data source, the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard as models

from parts import properties

if TYPE_CHECKING:
    from grafana_foundation_sdk.cog.builder import Builder

UIDS = {name: f"peerwatch-{name}" for name in ("fleet", "job", "node", "fabric", "detector")}
TAG = "peerwatch"

_KEPT = "${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}"
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


def _title(dashboard: str) -> str:
    return f"Open the {dashboard}'s dashboard"


def _url(
    dashboard: str, source: str, variables: tuple[str, ...], names: dict[str, str] | None = None
) -> str:
    values = "".join(
        f"&var-{variable}={source % (names or {}).get(variable, variable)}"
        for variable in variables
    )
    return f"/d/{UIDS[dashboard]}?{_KEPT}{values}"
