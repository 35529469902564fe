"""The few kinds of panels all dashboards are made of, with the house's defaults."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as dashboard_builders
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")

GREEN, YELLOW, RED, GREY = "green", "yellow", "red", "#8e8e8e"

Panel = Builder[models.Panel]
Properties = dict[str, Any]


def target(expr: str, legend: str = "", ref_id: str = "A") -> prometheus.Dataquery:
    """Return a range query."""
    return _query(expr, ref_id).legend_format(legend or "__auto").range()


def instant(expr: str, ref_id: str = "A") -> prometheus.Dataquery:
    """Return a query for the present values, as rows of a table."""
    return _query(expr, ref_id).instant().format(PromQueryFormat.TABLE)


def _query(expr: str, ref_id: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().datasource(DATASOURCE).expr(expr).ref_id(ref_id)


def properties(values: Properties) -> list[models.DynamicConfigValue]:
    """Return the settings of a field override."""
    return [models.DynamicConfigValue(id_val=name, value=value) for name, value in values.items()]


def fixed(color: str) -> Properties:
    """Return a fixed colour as an override's value."""
    return {"mode": "fixed", "fixedColor": color}


def thresholds(*steps: tuple[float | None, str]) -> dashboard_builders.ThresholdsConfig:
    """Return colours from (lower limit, colour); the first limit is None."""
    return (
        dashboard_builders.ThresholdsConfig()
        .mode(models.ThresholdsMode.ABSOLUTE)
        .steps([models.Threshold(value=value, color=color) for value, color in steps])
    )


def value_map(*entries: tuple[str, str, str]) -> list[models.ValueMapping]:
    """Return texts and colours for values, from (value, text, colour)."""
    options = {
        value: models.ValueMappingResult(text=text, color=color, index=index)
        for index, (value, text, color) in enumerate(entries)
    }
    return [models.ValueMap(options=options)]


def graph(
    title: str, description: str, unit: str, *, table_legend: bool = True
) -> timeseries.Panel:
    """Return lines over time; the legend as a table is sorted by the last value."""
    as_table = (
        common_builders.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.TABLE)
        .placement(common.LegendPlacement.RIGHT)
        .calcs(["lastNotNull", "max"])
        .sort_by("Last *")
        .sort_desc(True)
        .show_legend(True)
    )
    as_list = (
        common_builders.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    return (
        timeseries.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATASOURCE)
        .legend(as_table if table_legend else as_list)
        .tooltip(
            common_builders.VizTooltipOptions()
            .mode(common.TooltipDisplayMode.MULTI)
            .sort(common.SortOrder.DESCENDING)
        )
        .color_scheme(
            dashboard_builders.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC_BY_NAME)
        )
        .line_width(1)
        .fill_opacity(0)
        .show_points(common.VisibilityMode.NEVER)
        # A vanished node must show as a gap, not as a line drawn on.
        .span_nulls(False)
        .height(8)
        .span(12)
    )


def number(title: str, description: str, unit: str) -> stat.Panel:
    """Return one present value, coloured by its thresholds."""
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATASOURCE)
        .color_mode(common.BigValueColorMode.VALUE)
        .graph_mode(common.BigValueGraphMode.NONE)
        .text_mode(common.BigValueTextMode.VALUE)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .thresholds(thresholds((None, GREEN)))
        .no_value("no data")
        .height(4)
        .span(4)
    )


def rows(title: str, description: str, unit: str, columns: dict[str, str]) -> table.Panel:
    """Return a table of the present values; ``columns`` maps labels and values to headings."""
    organise = {
        "excludeByName": {"Time": True},
        "renameByName": columns,
        "indexByName": {name: index for index, name in enumerate(columns)},
    }
    return (
        table.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATASOURCE)
        .show_header(True)
        .transformations(
            [
                models.DataTransformerConfig(id_val="merge", options={}),
                models.DataTransformerConfig(id_val="organize", options=organise),
            ]
        )
        .height(8)
        .span(24)
    )


def query_variable(
    name: str, label: str, description: str, query: str
) -> dashboard_builders.QueryVariable:
    """Return a variable filled by a query, again whenever the time range changes."""
    return (
        dashboard_builders.QueryVariable(name)
        .label(label)
        .description(description)
        .datasource(DATASOURCE)
        .query({"qryType": 5, "query": query, "refId": f"variable-{name}"})
        .definition(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.DISABLED)
        .multi(False)
    )
