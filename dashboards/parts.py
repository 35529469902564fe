"""The few kinds of panels all dashboards are made of, with the house's defaults."""

from __future__ import annotations

from string import ascii_uppercase
from typing import Any

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as dashboard_builders
from grafana_foundation_sdk.builders import (
    prometheus,
    stat,
    statetimeline,
    statushistory,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")

# The one rule of colours: green is well, yellow is to be checked, red needs somebody now.
GREEN, YELLOW, RED, GREY = "green", "yellow", "red", "#8e8e8e"

Panel = stat.Panel | statetimeline.Panel | statushistory.Panel | table.Panel | timeseries.Panel
Properties = dict[str, Any]
# Below every value that is shown.
_LOWEST = -1e12
# A PromQL expression and the name of its series.
Query = tuple[str, str]

_MODES = models.FieldColorModeId


def target(expr: str, legend: str = "", ref_id: str = "A") -> prometheus.Dataquery:
    """Return a range query."""
    return _query(expr, ref_id).legend_format(legend or "__auto").range()


def instant(expr: str, ref_id: str = "A") -> prometheus.Dataquery:
    """Return a query for the present values, as rows of a table."""
    return _query(expr, ref_id).instant().format(PromQueryFormat.TABLE)


def _present(expr: str, legend: str = "") -> prometheus.Dataquery:
    """Return a query for the present value: over a range the last one would outlive its series."""
    return _query(expr, "A").legend_format(legend or "__auto").instant()


def _query(expr: str, ref_id: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().datasource(DATASOURCE).expr(expr).ref_id(ref_id)


def _targets(queries: tuple[Query, ...]) -> list[Builder[Any]]:
    return [
        target(expr, legend, ref_id)
        for ref_id, (expr, legend) in zip(ascii_uppercase, queries, strict=False)
    ]


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


def levels(first: str, *steps: tuple[float, str]) -> dashboard_builders.ThresholdsConfig:
    """Return colours from (lower limit, colour) above a first one, and grey for no value at all.

    Grafana gives what has no value the colour of the lowest step.
    """
    return thresholds((None, GREY), (_LOWEST, first), *steps)


def value_map(*entries: tuple[str, str, str]) -> list[models.ValueMapping]:
    """Return texts and colours for values, from (value, text, colour)."""
    options = {
        value: models.ValueMappingResult(text=text, color=color, index=index)
        for index, (value, text, color) in enumerate(entries)
    }
    return [models.ValueMap(options=options)]


def graph(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    table_legend: bool = True,
    signed: bool = False,
) -> timeseries.Panel:
    """Return lines over time from zero up; the legend as a table is sorted by the last value.

    Parameters
    ----------
    title, description, unit, queries
        Of the panel.
    table_legend
        Whether the legend is a table beside the graph, for more than a few series.
    signed
        Whether values may be below zero.
    """
    legend = common_builders.VizLegendOptions().show_legend(True)
    if table_legend:
        legend = (
            legend.display_mode(common.LegendDisplayMode.TABLE)
            .placement(common.LegendPlacement.RIGHT)
            .calcs(["lastNotNull", "max"])
            .sort_by("Last *")
            .sort_desc(True)
        )
    else:
        legend = legend.display_mode(common.LegendDisplayMode.LIST).placement(
            common.LegendPlacement.BOTTOM
        )
    panel = timeseries.Panel() if signed else timeseries.Panel().min(0)
    return (
        panel.title(title)
        .description(description)
        .unit(unit)
        .datasource(DATASOURCE)
        .targets(_targets(queries))
        .legend(legend)
        .tooltip(
            common_builders.VizTooltipOptions()
            .mode(common.TooltipDisplayMode.MULTI)
            .sort(common.SortOrder.DESCENDING)
        )
        .color_scheme(dashboard_builders.FieldColor().mode(_MODES.PALETTE_CLASSIC_BY_NAME))
        .line_width(1)
        .fill_opacity(0)
        .show_points(common.VisibilityMode.NEVER)
        # An absent node must show as a gap, not as a line drawn on.
        .span_nulls(False)
        .height(8)
        .span(12)
    )


def beside(unit: str) -> Properties:
    """Return an override for queries of another unit: an axis of their own, on the right."""
    return {"unit": unit, "custom.axisPlacement": "right"}


def areas(title: str, description: str, unit: str, *queries: Query) -> timeseries.Panel:
    """Return areas on top of one another, for parts of a whole."""
    return (
        graph(title, description, unit, *queries)
        .fill_opacity(40)
        .stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    )


def number(title: str, description: str, unit: str, expr: str) -> stat.Panel:
    """Return one present value, coloured by its thresholds."""
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATASOURCE)
        .with_target(_present(expr))
        .color_mode(common.BigValueColorMode.VALUE)
        .graph_mode(common.BigValueGraphMode.NONE)
        .text_mode(common.BigValueTextMode.VALUE)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .thresholds(levels(GREEN))
        .no_value("no data")
        .height(4)
        .span(4)
    )


def count(title: str, description: str, expr: str, seen: str, bad: str = RED) -> stat.Panel:
    """Return how many there are of something that should not be; none is green.

    Parameters
    ----------
    title, description
        Of the panel.
    expr
        Has no result where there is none.
    seen
        Series that exist while something is watched: without them it is "no data", not none.
    bad
        The colour of one and more.
    """
    return (
        number(title, description, "short", f"{expr} or 0 * count({seen})")
        .mappings(value_map(("0", "none", GREEN)))
        .thresholds(levels(GREEN, (1, bad)))
    )


def name(title: str, description: str, unit: str, expr: str, legend: str) -> stat.Panel:
    """Return the name of what the query finds, above its value."""
    return (
        number(title, description, unit, expr)
        .targets([_present(expr, legend)])
        .decimals(0)
        .text_mode(common.BigValueTextMode.VALUE_AND_NAME)
    )


def rows(title: str, description: str, columns: dict[str, str], *expressions: str) -> table.Panel:
    """Return a table of the present values.

    Parameters
    ----------
    title, description
        Of the panel.
    columns
        Headings by label or value, in order. The value of the first expression is ``Value #A``, or
        ``Value`` where it is the only one.
    expressions
        PromQL; rows with the same labels become one.
    """
    organise = {
        "excludeByName": {"Time": True},
        "renameByName": columns,
        "indexByName": {column: index for index, column in enumerate(columns)},
    }
    queries = [
        instant(expr, ref_id) for ref_id, expr in zip(ascii_uppercase, expressions, strict=False)
    ]
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .unit("short")
        .datasource(DATASOURCE)
        .targets(list(queries))
        .show_header(True)
        .transformations(
            [
                models.DataTransformerConfig(id_val="merge", options={}),
                models.DataTransformerConfig(id_val="organize", options=organise),
            ]
        )
        .height(7)
        .span(24)
    )
    for heading in columns.values():
        # Else an empty cell repeats what the panel says when it has no row at all.
        panel = panel.override_by_name(heading, properties({"noValue": "-"}))
    return panel


def matrix(
    title: str,
    description: str,
    unit: str,
    labels: tuple[str, str],
    expr: str,
    *,
    heading: str = "From",
) -> table.Panel:
    """Return a table of the present values by two labels, cells coloured by thresholds.

    Parameters
    ----------
    title, description, unit
        Of the panel.
    labels
        Of rows, and of columns, whose headings are the label's values.
    expr
        PromQL; its series have just these labels.
    heading
        Of the rows.
    """
    row, column = labels
    transformations = [
        # Rows and columns come in the order in which they are seen first.
        ("sortBy", {"fields": {}, "sort": [{"field": column}]}),
        (
            "groupingToMatrix",
            {"columnField": column, "rowField": row, "valueField": "Value", "emptyValue": "null"},
        ),
        ("organize", {"renameByName": {f"{row}\\{column}": heading}}),
        ("sortBy", {"fields": {}, "sort": [{"field": heading}]}),
    ]
    cells = {"type": "color-background", "mode": "basic"}
    return (
        table.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATASOURCE)
        .with_target(instant(expr))
        .show_header(True)
        .min_width(60)
        .transformations(
            [
                models.DataTransformerConfig(id_val=name, options=options)
                for name, options in transformations
            ]
        )
        .color_scheme(dashboard_builders.FieldColor().mode(_MODES.THRESHOLDS))
        # Else the cell of a pair that is not measured repeats what the panel says when it is empty.
        .override_by_field_type("number", properties({"custom.cellOptions": cells, "noValue": "-"}))
        .height(10)
        .span(8)
    )


def states(
    title: str, description: str, mappings: list[models.ValueMapping], *queries: Query
) -> statetimeline.Panel:
    """Return states over time, one row for each series."""
    return (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .unit("short")
        .datasource(DATASOURCE)
        .targets(_targets(queries))
        .mappings(mappings)
        .color_scheme(dashboard_builders.FieldColor().mode(_MODES.THRESHOLDS))
        .thresholds(thresholds((None, GREY)))
        .legend(common_builders.VizLegendOptions().show_legend(False))
        .show_value(common.VisibilityMode.NEVER)
        .row_height(0.8)
        .fill_opacity(80)
        .line_width(0)
        .height(8)
        .span(12)
    )


def scores(title: str, description: str, expr: str, legend: str) -> statushistory.Panel:
    """Return a heat map of fault scores: yellow is evidence, and only a finding is red."""
    return (
        heat(title, description, "percentunit", expr, legend)
        .color_scheme(dashboard_builders.FieldColor().mode(_MODES.THRESHOLDS))
        .thresholds(levels(GREEN, (0.5, YELLOW), (1, RED)))
    )


def heat(title: str, description: str, unit: str, expr: str, legend: str) -> statushistory.Panel:
    """Return a heat map from 0 to 1 over series and time: green is well, red is not."""
    return (
        statushistory.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATASOURCE)
        .with_target(target(expr, legend))
        .min(0)
        .max(1)
        .color_scheme(dashboard_builders.FieldColor().mode(_MODES.CONTINUOUS_GR_YL_RD))
        .legend(common_builders.VizLegendOptions().show_legend(False))
        .show_value(common.VisibilityMode.NEVER)
        # Wider cells than points: a browser draws some thousand of them at once, not a million.
        .max_data_points(120)
        .row_height(0.9)
        .col_width(1)
        .fill_opacity(85)
        .line_width(0)
        .height(10)
        .span(24)
    )
