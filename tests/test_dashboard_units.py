"""Each query of a panel has the unit that its axis or its number shows."""

from __future__ import annotations

from collections import Counter

import promql_parser
import pytest

from dashboard_queries import DASHBOARDS, VARIABLES, load, panels, substitute

_BASES = {"seconds": "s", "bytes": "B", "watts": "W", "celsius": "C", "hertz": "Hz", "joules": "J"}
# Of Grafana's units: what a value must be, in base units. A pure number may be per second.
_MEANT = {
    "s": ({"s": 1},),
    "bytes": ({"B": 1},),
    "binBps": ({"B": 1, "s": -1},),
    "watt": ({"W": 1},),
    "celsius": ({"C": 1},),
    "hertz": ({"Hz": 1},),
    "percentunit": ({},),
    # Bits per bit.
    "sci": ({}, {"B": -1}),
    "pps": ({"s": -1},),
    # Hours where the title says so.
    "short": ({}, {"s": -1}, {"h": 1}),
}
# Their last part says how they were made, not of what.
_UNKNOWN = {"rate"}


def _unit_of_name(name: str) -> Counter[str] | None:
    parts = name.removesuffix("_total").replace(":", "_").split("_")
    if parts[-1] in _UNKNOWN and ":" in name:
        return None
    if parts[-2:] == ["per", "second"]:
        inner = _unit_of_name("_".join(parts[:-2]))
        return _times(inner, Counter({"s": 1}), -1)
    return Counter({_BASES[parts[-1]]: 1}) if parts[-1] in _BASES else Counter()


def _times(left, right, power: int = 1):
    if left is None or right is None:
        return None
    found = Counter(left)
    for base, exponent in right.items():
        found[base] += power * exponent
    return Counter({base: exponent for base, exponent in found.items() if exponent})


def unit_of(expr) -> Counter[str] | None:
    """Return the base units of an expression's values; None where a name does not say them."""
    if isinstance(expr, promql_parser.VectorSelector):
        return _unit_of_name(expr.name)
    if isinstance(expr, promql_parser.MatrixSelector):
        return unit_of(expr.vector_selector)
    if isinstance(expr, promql_parser.AggregateExpr):
        return Counter() if str(expr.op) in {"count", "group"} else unit_of(expr.expr)
    if isinstance(expr, promql_parser.BinaryExpr):
        left, operator = unit_of(expr.lhs), str(expr.op)
        if operator == "/" and left == {"s": 1} and str(expr.rhs) == "3600":
            return Counter({"h": 1})
        if operator in {"*", "/"}:
            return _times(left, unit_of(expr.rhs), 1 if operator == "*" else -1)
        return left
    if isinstance(expr, promql_parser.Call):
        return _unit_of_call(expr)
    if isinstance(expr, promql_parser.NumberLiteral):
        return Counter()
    return unit_of(expr.expr)


def _unit_of_call(call) -> Counter[str] | None:
    if call.func.name in {"time", "timestamp"}:
        return Counter({"s": 1})
    if call.func.name in {"changes", "vector", "resets", "count_over_time", "absent"}:
        return Counter()
    argument = unit_of(call.args[-1])
    if call.func.name in {"rate", "irate", "deriv"}:
        return _times(argument, Counter({"s": 1}), -1)
    return argument


def shown(panel) -> dict[str, str]:
    """Return the unit of each query: the panel's, unless the query has one of its own."""
    fields = panel["fieldConfig"]
    units = {each["refId"]: fields["defaults"]["unit"] for each in panel["targets"]}
    for override in fields.get("overrides", ()):
        matcher = override["matcher"]
        if matcher["id"] == "byFrameRefID":
            own = {each["id"]: each["value"] for each in override["properties"]}
            units[matcher["options"]] = own.get("unit", units[matcher["options"]])
    return units


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_query_has_the_unit_that_is_shown(path):
    wrong = []
    for panel in panels(load(path)):
        if panel["type"] not in {"timeseries", "stat", "status-history"}:
            continue
        units = shown(panel)
        for target in panel["targets"]:
            found = unit_of(promql_parser.parse(substitute(target["expr"], VARIABLES)))
            unit = units[target["refId"]]
            if found is not None and dict(found) not in _MEANT[unit]:
                wrong.append((panel["title"], unit, dict(found), target["expr"]))

    assert not wrong


@pytest.mark.parametrize(
    ("expr", "unit"),
    [
        ("sum(rate(a_seconds_total[1m]))", {}),
        ("rate(a_bytes_total[1m]) and on (x) b", {"B": 1, "s": -1}),
        ("time() - max(a_timestamp_seconds)", {"s": 1}),
        ("count(a_seconds > 1) or 0 * count(b)", {}),
        ("sum(rate(a_seconds_total[1m])) / sum(rate(b_total[1m]))", {"s": 1}),
        ("sum(increase(a_seconds_total[1d])) / 3600", {"h": 1}),
        ("job_gpu:power:watts", {"W": 1}),
        ("nic_burst_bytes_per_second", {"B": 1, "s": -1}),
        ("job_node:rdma_throughput:rate", None),
    ],
)
def test_units_follow_from_names_and_operators(expr, unit):
    found = unit_of(promql_parser.parse(expr))

    assert (found if found is None else dict(found)) == unit
