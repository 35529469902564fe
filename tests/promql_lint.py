"""What promtool does not check: that expressions use our metrics, and use them rightly.

Every function takes a parsed expression and returns problems as sentences; nothing is raised, so a
test shows all of them at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import promql_parser as promql

from yaml_files import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
PRESET = ROOT / "detector" / "peerwatch_detector" / "config" / "presets" / "peerwatch.yaml"

# Set by the scrape configuration, on every series.
TARGET_LABELS = frozenset(
    {"cluster", "node", "instance", "job", "topology_rack", "topology_leaf", "topology_pod"}
)
# What an alert must keep where its metrics have it, so that routes and inhibitions can match.
JOIN_LABELS = ("cluster", "job_id", "node")

_RATES = {"rate", "irate", "increase"}
_COMPARISONS = {">", ">=", "<", "<=", "==", "!="}
_SETS = {"and", "or", "unless"}
# Two missed scrapes at the longest usual interval, in seconds.
_TWO_SCRAPES = 60


@dataclass(frozen=True)
class Metric:
    """What the lint needs to know of a metric."""

    kind: str
    labels: frozenset[str]


Schema = Mapping[str, Metric]

_GPU = frozenset({"gpu", "UUID", "job_id"})
_PORT = frozenset({"device", "port"})
_PAUSE = _PORT | {"netdev", "direction", "priority"}
# Metrics of dcgm-exporter (job_id by relabelling), node_exporter and rdma_exporter, by their own
# expositions. What dcgm-exporter calls a counter and is a rate is a gauge here.
FOREIGN: Schema = {
    **dict.fromkeys(
        (
            "DCGM_FI_DEV_FB_USED",
            "DCGM_FI_DEV_GPU_UTIL",
            "DCGM_FI_DEV_POWER_USAGE",
            "DCGM_FI_DEV_SM_CLOCK",
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
            "DCGM_FI_PROF_NVLINK_RX_BYTES",
            "DCGM_FI_PROF_NVLINK_TX_BYTES",
            "DCGM_FI_PROF_PCIE_RX_BYTES",
            "DCGM_FI_PROF_PCIE_TX_BYTES",
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        ),
        Metric("gauge", _GPU),
    ),
    **dict.fromkeys(
        (
            "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
            "DCGM_FI_DEV_ROW_REMAP_FAILURE",
            "DCGM_FI_DEV_ROW_REMAP_PENDING",
            "DCGM_FI_DEV_XID_ERRORS",
        ),
        Metric("gauge", _GPU),
    ),
    **dict.fromkeys(
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"),
        Metric("counter", _GPU),
    ),
    "node_cpu_seconds_total": Metric("counter", frozenset({"cpu", "mode"})),
    "node_memory_MemAvailable_bytes": Metric("gauge", frozenset()),
    "node_memory_MemTotal_bytes": Metric("gauge", frozenset()),
    "node_netstat_Tcp_RetransSegs": Metric("counter", frozenset()),
    "node_network_receive_bytes_total": Metric("counter", frozenset({"device"})),
    "node_network_transmit_bytes_total": Metric("counter", frozenset({"device"})),
    "rdma_np_cnp_sent_total": Metric("counter", _PORT),
    "rdma_np_ecn_marked_roce_packets_total": Metric("counter", _PORT),
    "rdma_port_rcv_data_total": Metric("counter", _PORT),
    "rdma_port_xmit_data_total": Metric("counter", _PORT),
    # Of peerwatch-exporter, where it runs beside them.
    "rank_steps_total": Metric("counter", frozenset({"job_id", "rank"})),
    "rdma_roce_pfc_pause_frames_total": Metric("counter", _PAUSE),
}
# Which node serves which training job (rules/job.rules.yaml, and its like for other exporters).
MEMBERSHIP = {
    "job_node:membership:info": Metric("gauge", frozenset({"job_id", "node"})),
    "job_node:last_seen:seconds": Metric("gauge", frozenset({"job_id", "node"})),
    "job_node:degraded_device:info": Metric("gauge", frozenset({"job_id", "node"})),
    "job_node:newly_degraded_device:info": Metric("gauge", frozenset({"job_id", "node"})),
    "job:iteration_recent:seconds": Metric("gauge", frozenset({"job_id"})),
    "job:iteration_hour:seconds": Metric("gauge", frozenset({"job_id"})),
    "job:degradation:ratio": Metric("gauge", frozenset({"job_id"})),
    "node:gpus_expected:max": Metric("gauge", frozenset({"node"})),
    "job_gpu:membership:info": Metric("gauge", frozenset({"job_id", "node", "gpu"})),
}
# Ports that were up and are down (rules/fabric.rules.yaml).
LOST_LINKS = {"port:lost_link:info": Metric("gauge", frozenset({"node", "device", "port"}))}
# What does not pass by itself (rules/gpu.rules.yaml, rules/node.rules.yaml): errors of a GPU, by
# address and class, or of an NVSwitch.
_ERROR = frozenset({"node", "pci_bus_id", "xid", "class", "switch", "sxid"})
HELD = {
    "gpu:reset_timestamp:max": Metric("gauge", frozenset({"node", "gpu"})),
    "gpu:lasting_error_timestamp:max": Metric("gauge", _ERROR),
    "gpu:ended_error_timestamp:max": Metric("gauge", _ERROR),
    "gpu:unresolved_error_timestamp:max": Metric("gauge", _ERROR),
    "node:pcie_device_gone:max": Metric("gauge", frozenset({"node", "bdf"})),
    "node:memory_lost:max": Metric("gauge", frozenset({"node", "controller"})),
}
# Checks that nodes fail, and those that many fail at once (rules/machine.rules.yaml).
_CHECK = frozenset({"check", "severity"})
CHECKS = {
    "node:check_failed_device:info": Metric("gauge", _CHECK | {"node", "device"}),
    "node:check_failed:info": Metric("gauge", _CHECK | {"node"}),
    "node:check_tested:seconds": Metric("gauge", frozenset({"node", "check"})),
    "cluster:check_failed_nodes:count": Metric("gauge", _CHECK),
    "node:check_failed_alike:info": Metric("gauge", _CHECK | {"node"}),
}
# What is there of each cluster (rules/meta.rules.yaml, rules/responder.rules.yaml).
CLUSTERS = {
    "cluster:nodes:count": Metric("gauge", frozenset()),
    "cluster:detectors:count": Metric("gauge", frozenset()),
    "cluster:responders:count": Metric("gauge", frozenset()),
    "cluster:exporters_seen:count": Metric("gauge", frozenset()),
    "node:tickets:count": Metric("gauge", frozenset({"node"})),
    "node:xid_logged:seconds": Metric("gauge", frozenset({"node", "xid"})),
}
# Nodes by place, and their faults that may share a cause (rules/shared.rules.yaml).
_PLACES = frozenset({"topology_rack", "topology_leaf", "topology_pod"})
_PLACE = frozenset({"level", "place"})
_FAULT = frozenset({"node", "component", "kind"})
SHARED = {
    # Given by the user (docs/topology.md).
    "node_topology_info": Metric("gauge", _PLACES | {"node"}),
    "node:topology_reported:seconds": Metric("gauge", _PLACES | {"node"}),
    "node:topology:seconds": Metric("gauge", _PLACES | {"node"}),
    "node:place:seconds": Metric("gauge", _PLACE | {"node", "unit"}),
    "place:nodes:count": Metric("gauge", _PLACE),
    "node:fault:info": Metric("gauge", _FAULT | {"alertstate", "severity"}),
    "alert:fault_evaluated:seconds": Metric("gauge", frozenset()),
    "alert:fault_gap:seconds": Metric("gauge", frozenset()),
    "alert:fault_resumed:seconds": Metric("gauge", frozenset()),
    "alert:fault_watch:seconds": Metric("gauge", frozenset()),
    "node:fault_start:seconds": Metric("gauge", _FAULT),
    "node:fault_place:seconds": Metric("gauge", _FAULT | _PLACE | {"unit"}),
    "place:shared_fault:score": Metric("gauge", _FAULT - {"node"} | _PLACE),
    "place:whole_fault:score": Metric("gauge", _FAULT - {"node"} | _PLACE),
    "node:shared_place:score": Metric("gauge", _FAULT | _PLACE),
    "node:shared_best:score": Metric("gauge", _FAULT | _PLACE),
    "node:shared_before:seconds": Metric("gauge", _FAULT | _PLACE),
    "node:shared_still:seconds": Metric("gauge", _FAULT | _PLACE),
    "node:shared_fault:seconds": Metric("gauge", _FAULT | _PLACE),
}
# What the server itself writes of alerts: that they are pending or fire, and since when.
_ALERT = frozenset({"alertname", "severity", "role", "component", "job_id", "node", "metric"})
# Which alerts cannot fire (rules/source.rules.yaml).
SOURCES = {
    "collector:with_source:count": Metric("gauge", frozenset({"collector"})),
    "alert:without_source:info": Metric("gauge", frozenset({"alertname", "collector"})),
}
ALERTS = {
    "ALERTS": Metric("gauge", _ALERT | {"alertstate"}),
    "ALERTS_FOR_STATE": Metric("gauge", _ALERT),
}


@cache
def pack_schema() -> dict[str, Metric]:
    """Return every metric the pack may use: the catalogue, and what the recording rules build."""
    from all_metrics import ALL_METRICS

    schema = {name: Metric(spec.kind, frozenset(spec.labels)) for name, spec in ALL_METRICS.items()}
    for metric in read_yaml(PRESET)["metrics"]:
        labels = {"job_id", "node"} | ({"gpu"} if metric["scope"] == "gpu" else set())
        schema[metric["recorded"]] = Metric("gauge", frozenset(labels))
    # Its absence tells that nobody's exporter is scraped.
    presence = "DCGM_FI_DEV_GPU_UTIL"
    scraped = {"up": Metric("gauge", frozenset())}
    built = MEMBERSHIP | LOST_LINKS | HELD | CHECKS | CLUSTERS | SOURCES | SHARED
    return schema | built | {presence: FOREIGN[presence]} | scraped | ALERTS


@cache
def dcgm_schema() -> dict[str, Metric]:
    """Return every metric that rules for other people's exporters may use."""
    return dict(FOREIGN) | MEMBERSHIP


def children(expr: promql.Expr) -> list[promql.Expr]:
    """Return the expressions directly inside ``expr``."""
    match expr:
        case promql.BinaryExpr():
            return [expr.lhs, expr.rhs]
        case promql.AggregateExpr():
            return [expr.expr] + ([expr.param] if expr.param is not None else [])
        case promql.Call():
            return list(expr.args)
        case promql.MatrixSelector():
            return [expr.vector_selector]
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return [expr.expr]
    return []


def walk(expr: promql.Expr) -> Iterator[promql.Expr]:
    """Yield ``expr`` and all expressions in it."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def selectors(expr: promql.Expr) -> list[promql.VectorSelector]:
    """Return every selector of series in ``expr``."""
    return [part for part in walk(expr) if isinstance(part, promql.VectorSelector)]


def operator(expr: promql.Expr) -> str:
    """Return the binary operator of ``expr``, or an empty string."""
    return str(expr.op) if isinstance(expr, promql.BinaryExpr) else ""


def bare(expr: promql.Expr) -> promql.Expr:
    """Return ``expr`` without the parentheses around it."""
    while isinstance(expr, promql.ParenExpr):
        expr = expr.expr
    return expr


def labels_of(expr: promql.Expr, schema: Schema) -> frozenset[str]:
    """Return the labels that the result of ``expr`` can have."""
    expr = bare(expr)
    match expr:
        case promql.VectorSelector():
            metric = schema.get(expr.name or "")
            return (metric.labels if metric else frozenset()) | TARGET_LABELS
        case promql.AggregateExpr():
            inner = labels_of(expr.expr, schema)
            if str(expr.op) in {"topk", "bottomk"}:
                # They keep the series that they choose.
                return inner
            if expr.modifier is None:
                return frozenset()
            if expr.modifier.type == promql.AggModifierType.By:
                return inner & set(expr.modifier.labels)
            return inner - set(expr.modifier.labels)
        case promql.BinaryExpr():
            return _labels_of_binary(expr, schema)
        case promql.Call() if expr.func.name in {"absent", "vector", "time", "scalar"}:
            return frozenset()
        case promql.Call() if expr.func.name in {"label_replace", "label_join"}:
            return labels_of(expr.args[0], schema) | {_text(expr.args[1])}
    inner = [labels_of(child, schema) for child in children(expr)]
    return frozenset().union(*inner)


def _labels_of_binary(expr: promql.BinaryExpr, schema: Schema) -> frozenset[str]:
    left, right = labels_of(expr.lhs, schema), labels_of(expr.rhs, schema)
    if operator(expr) in {"and", "unless"} or _is_scalar(expr.rhs):
        return left
    if operator(expr) == "or":
        return left | right
    if _is_scalar(expr.lhs):
        return right
    if expr.modifier is None:
        return left & right
    card, matching = expr.modifier.card, expr.modifier.matching
    extra = set(expr.modifier.group_labels or ())
    if card == promql.VectorMatchCardinality.ManyToOne:
        return left | extra
    if card == promql.VectorMatchCardinality.OneToMany:
        return right | extra
    if matching is None:
        return left & right
    on = set(matching.labels)
    return left & on if matching.type == promql.LabelModifierType.Include else left - on


def _text(expr: promql.Expr) -> str:
    """Return the text of a string literal."""
    assert isinstance(expr, promql.StringLiteral), expr
    return expr.val


def _is_scalar(expr: promql.Expr) -> bool:
    """Return whether ``expr`` is a number, or made of numbers and ``time()`` only."""
    expr = bare(expr)
    if isinstance(expr, promql.Call):
        return expr.func.name in {"time", "scalar"}
    if isinstance(expr, promql.BinaryExpr):
        return _is_scalar(expr.lhs) and _is_scalar(expr.rhs)
    return isinstance(expr, promql.NumberLiteral)


def names(expr: promql.Expr, schema: Schema) -> Iterator[str]:
    """Metrics exist, and so do the labels their selectors ask for."""
    for selector in selectors(expr):
        if selector.name is None:
            yield f"selector without a metric name: {selector}"
        elif selector.name not in schema:
            yield f"unknown metric {selector.name!r}"
        else:
            known = labels_of(selector, schema)
            for matcher in selector.matchers.matchers:
                if matcher.name not in known:
                    yield f"{selector.name} has no label {matcher.name!r} to select by"


def groupings(expr: promql.Expr, schema: Schema) -> Iterator[str]:
    """``by``, ``without``, ``on`` and ``group_left`` name labels that are there."""
    for part in walk(expr):
        if isinstance(part, promql.AggregateExpr) and part.modifier is not None:
            for label in sorted(set(part.modifier.labels) - labels_of(part.expr, schema)):
                yield f"{part.op} {part.modifier.type}: no label {label!r} inside"
        if isinstance(part, promql.BinaryExpr) and part.modifier and part.modifier.matching:
            for side in (part.lhs, part.rhs):
                for label in sorted(set(part.modifier.matching.labels) - labels_of(side, schema)):
                    yield f"{operator(part)} on: no label {label!r} in {bare(side)}"


def rates(expr: promql.Expr, schema: Schema) -> Iterator[str]:
    """Only counters have rates."""
    for part in walk(expr):
        if isinstance(part, promql.Call) and part.func.name in _RATES:
            for selector in selectors(part):
                metric = schema.get(selector.name or "")
                if metric is not None and metric.kind != "counter":
                    yield f"{part.func.name}() of {selector.name}, which is a {metric.kind}"


def divisions(expr: promql.Expr) -> Iterator[str]:
    """A divisor is a number other than 0, or is compared so that zeros drop out."""
    for part in walk(expr):
        if operator(part) != "/":
            continue
        divisor = bare(part.rhs)
        if isinstance(divisor, promql.NumberLiteral):
            if divisor.val == 0:
                yield "division by 0"
        elif not any(operator(inner) in {">", "!="} for inner in walk(divisor)):
            yield f"division by {divisor} is not guarded against 0"


def lint(expression: str, schema: Schema) -> list[str]:
    """Return every problem of an expression of a rule or a panel."""
    try:
        expr = promql.parse(expression)
    except ValueError as error:
        return [f"does not parse: {error}"]
    return [
        *names(expr, schema),
        *groupings(expr, schema),
        *rates(expr, schema),
        *divisions(expr),
    ]


def arms(expr: promql.Expr) -> list[promql.Expr]:
    """Return what ``or`` joins: each arm fires for itself."""
    expr = bare(expr)
    return arms(expr.lhs) + arms(expr.rhs) if operator(expr) == "or" else [expr]


def lint_alert(expression: str, for_seconds: float, schema: Schema) -> list[str]:
    """Return the problems an expression has as an alert's, beyond those of ``lint``."""
    problems = []
    for arm in arms(promql.parse(expression)):
        problems += _lint_arm(arm, for_seconds, schema)
    return problems


def _lint_arm(arm: promql.Expr, for_seconds: float, schema: Schema) -> Iterator[str]:
    evaluated = arm
    while operator(evaluated) in {"and", "unless"}:  # the right side only gates
        evaluated = bare(evaluated.lhs)
    if isinstance(evaluated, promql.Call) and evaluated.func.name in {"absent", "vector"}:
        if evaluated.func.name == "absent" and for_seconds < _TWO_SCRAPES:
            yield f"absent() with for below {_TWO_SCRAPES} s: two missed scrapes fire it"
        return
    if operator(evaluated) not in _COMPARISONS:
        yield f"no comparison: {arm}"
    smoothed = any(
        isinstance(part, promql.Call)
        and part.func.name.endswith("_over_time")
        # A window that only remembers smooths nothing.
        and part.func.name not in {"last_over_time", "present_over_time"}
        for part in walk(evaluated)
    )
    if smoothed and for_seconds > 60:
        yield "a smoothed value that must also last: use keep_firing_for, not a long for"
    if any(
        str(part.op) in {"topk", "bottomk"}
        for part in walk(arm)
        if isinstance(part, promql.AggregateExpr)
    ):
        yield "topk in an alert: which series fires changes from one evaluation to the next"
    declared = frozenset().union(
        *(schema[s.name].labels for s in selectors(evaluated) if s.name in schema)
    )
    kept = labels_of(arm, schema)
    for label in JOIN_LABELS:
        if (label == "cluster" or label in declared) and label not in kept:
            yield f"the alert loses the label {label!r}"
