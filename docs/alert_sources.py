"""The rules that list alerts without a source, from what the alerts' expressions ask for."""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import promql_parser as promql
import yaml

from peerwatch_exporter.collector import registrations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RULES = Path(__file__).resolve().parents[1] / "rules"
FILE = "source.rules.yaml"
# Recorded series that only hold an alert, which began with another part of its expression.
HOLDING = frozenset(
    {"gpu:unresolved_error_timestamp:max", "node:pcie_device_gone:max", "node:memory_lost:max"}
)

# Metrics that must all be there for an expression to have a value, and sets that do as well:
# {{a, b}, {c}} is (a and b) or c. With the empty set it always can; without any set it never can.
Needs = frozenset[frozenset[str]]
_ALWAYS: Needs = frozenset({frozenset()})
_NEVER: Needs = frozenset()
_NAME = re.compile(r"[A-Za-z_][\w:]*")

_HEAD = """\
# Alerts that can never fire on this cluster, because no node has what they are made of: a collector
# that is switched off, or that is not given its source (the chart's exporter.privileges), or fails
# everywhere. Generated from the other rules' expressions and the collectors' declarations: run
# `make generate`. docs/rules.md#alerts-without-a-source explains them.
#
# A metric that is there is a source, whatever its collector says: part of it may be enough.
groups:
  - name: peerwatch_source
    # Changes with the configuration only; shorter than the 5 minutes that a sample is shown for.
    interval: 4m
    rules:
      # Nodes whose collector runs and finds what it reads, or has no such hardware.
      - record: collector:with_source:count
        expr: |
          count by (cluster, collector) (
              exporter_collector_success == 1
            unless on (cluster, node, collector)
              exporter_collector_error_info{error="source_missing"}
          )
"""


def source_rules() -> str:
    """Return the text of rules/source.rules.yaml."""
    rules = [
        _rule(alert, collectors, metrics)
        for alert, needs in alert_needs().items()
        for collectors, metrics in _sources(needs)
    ]
    return _HEAD + "".join(rules)


@cache
def alert_needs() -> Mapping[str, Needs]:
    """Return the metrics of collectors that each alert needs, of those that need any."""
    alerts = [name for name in _expressions() if name.startswith("Peerwatch")]
    needs = {name: _needs_of_name(name, frozenset()) for name in alerts}
    return {name: found for name, found in needs.items() if found != _ALWAYS}


def _sources(needs: Needs) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return the collectors, with their metrics, of which an alert needs at least one."""
    owners = _owners()
    clauses: dict[frozenset[str], set[str]] = {}
    # One metric of each set: if none of these has a source, no set is complete.
    for chosen in product(*needs):
        clauses.setdefault(frozenset(owners[name] for name in chosen), set()).update(chosen)
    smallest = [key for key in clauses if not any(other < key for other in clauses)]
    return sorted((tuple(sorted(key)), tuple(sorted(clauses[key]))) for key in smallest)


def _rule(alert: str, collectors: tuple[str, ...], metrics: tuple[str, ...]) -> str:
    lines = [
        "",
        "      - record: alert:without_source:info",
        "        expr: |",
        "          group by (cluster) (exporter_build_info)",
        "          unless on (cluster)",
        f'            collector:with_source:count{{collector=~"{"|".join(collectors)}"}}',
    ]
    for metric in metrics:
        lines += ["          unless on (cluster)", f"            {metric}"]
    lines.append(f'        labels: {{alertname: {alert}, collector: "{", ".join(collectors)}"}}')
    return "\n".join(lines) + "\n"


@cache
def _owners() -> Mapping[str, str]:
    """Return the collector of each metric."""
    return {
        metric.name: name
        for name, collector in registrations().items()
        for metric in collector.metrics
    }


@cache
def _expressions() -> Mapping[str, list[promql.Expr]]:
    """Return the expressions of each alert and recorded series."""
    expressions: dict[str, list[promql.Expr]] = {}
    for path in sorted(RULES.glob("*.rules.yaml")):
        # What this file records is about the alerts, not under them.
        for group in yaml.safe_load(path.read_text())["groups"] if path.name != FILE else ():
            for rule in group["rules"]:
                name = rule.get("record") or rule["alert"]
                expressions.setdefault(name, []).append(promql.parse(rule["expr"]))
    return expressions


@cache
def _reached(name: str) -> frozenset[str]:
    """Return the alerts and recorded series that one is made of, at any depth, and itself."""
    found, rest = {name}, [name]
    while rest:
        text = " ".join(map(str, _expressions()[rest.pop()]))
        more = (_expressions().keys() & set(_NAME.findall(text))) - found
        found |= more
        rest += more
    return frozenset(found)


def _needs_of_name(name: str, within: frozenset[str]) -> Needs:
    # What it is never asked about changes nothing, so that the same is not worked out again.
    return _needs_within(name, within & _reached(name))


@cache
def _needs_within(name: str, within: frozenset[str]) -> Needs:
    # A series that is recorded from itself, to hold it, begins with something else.
    if name in within:
        return _NEVER
    inner = within | {name}
    return _any(_needs(expression, inner) for expression in _expressions()[name])


def _needs(expr: promql.Expr, within: frozenset[str]) -> Needs:
    def inner(*parts: promql.Expr) -> list[Needs]:
        return [_needs(part, within) for part in parts]

    found = _ALWAYS
    match expr:
        case promql.VectorSelector():
            name = str(expr.name)
            if name == "ALERTS":
                # One that holds itself needs what it began with; what others need is told there.
                found = _ALWAYS if _alerts_of(expr) - within else _NEVER
            elif name in HOLDING:
                found = _NEVER
            elif name in _expressions():
                found = _needs_of_name(name, within)
            elif name in _owners():
                found = frozenset({frozenset({name})})
        case promql.MatrixSelector():
            (found,) = inner(expr.vector_selector)
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            (found,) = inner(expr.expr)
        case promql.AggregateExpr():
            (found,) = inner(expr.expr)
        case promql.Call() if not expr.func.name.startswith("absent"):
            found = _all(inner(*expr.args))
        case promql.BinaryExpr():
            left, right = inner(expr.lhs, expr.rhs)
            joined = {"unless": left, "or": _any((left, right))}
            found = joined.get(str(expr.op), _all((left, right)))
    return found


def _alerts_of(selector: promql.VectorSelector) -> frozenset[str]:
    """Return the alerts that a selector of ``ALERTS`` names; none if it names none."""
    named = [each.value for each in selector.matchers.matchers if each.name == "alertname"]
    return frozenset(name for value in named for name in value.split("|")) & _expressions().keys()


def _any(parts: Iterable[Needs]) -> Needs:
    return _shortest(needed for part in parts for needed in part)


def _all(parts: Iterable[Needs]) -> Needs:
    return _shortest(frozenset().union(*chosen) for chosen in product(*parts))


def _shortest(sets: Iterable[frozenset[str]]) -> Needs:
    """Return the sets without those that contain another one."""
    found = frozenset(sets)
    return frozenset(needed for needed in found if not any(other < needed for other in found))


def without_source_rows() -> list[str]:
    """Return a row for each group of collectors: the alerts that never fire without it."""
    alerts: dict[tuple[str, ...], list[str]] = {}
    for alert, needs in alert_needs().items():
        for collectors, _ in _sources(needs):
            alerts.setdefault(collectors, []).append(alert)
    rows = ["| without the collector | can never fire |", "|---|---|"]
    for collectors, names in sorted(alerts.items()):
        which = " and ".join(f"`{name}`" for name in collectors)
        rows.append(f"| {which} | {', '.join(f'[{n}](runbooks/{n}.md)' for n in names)} |")
    return rows
