"""The books as plain values: what JSON, the view and the text are made from."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from peerwatch_reliability.accounting.ettr import expected_ettr, optimal_checkpoint_seconds
from peerwatch_reliability.report.jobs import job_values
from peerwatch_reliability.report.values import ettr_values

if TYPE_CHECKING:
    from peerwatch_reliability.accounting.ettr import Plan
    from peerwatch_reliability.accounting.intervals import Rate
    from peerwatch_reliability.lemons.lemons import Lemons
    from peerwatch_reliability.report.books import Books

_HOUR = 3600.0
_DAY = 86_400.0
# Entries of each list: chosen, what a person reads.
_SHOWN = 20
# Chosen: each about twice the one before; jobs checkpoint within this range.
_WHAT_IF_MINUTES = (5, 10, 20, 30, 60, 120, 240)


def document_of(books: Books) -> dict[str, Any]:
    """Return the books as JSON can hold them; what is not known is null."""
    lost: dict[str, dict[str, float]] = {}
    for loss in books.losses:
        of_cause = lost.setdefault(loss.cause, {"first_order": 0.0, "second_order": 0.0})
        of_cause["first_order" if loss.order == 1 else "second_order"] += loss.gpu_seconds / _HOUR
    return {
        "from": _moment(books.window.start),
        "to": _moment(books.window.end),
        "nodes": books.nodes,
        "jobs": len(books.chains),
        "attempts": len(books.why),
        "failures": sum(each.is_failure_of_infrastructure for each in books.why.values()),
        "unexplained": sum(each.origin == "unknown" for each in books.why.values()),
        "missing": list(books.missing),
        "ettr": ettr_values(books.ettr),
        "ettr_by_size": {name: ettr_values(each) for name, each in books.ettr_by_size.items()},
        "jobs_with_most_gpu_time": job_values(books, _SHOWN),
        "expected": _expected(books.plan),
        "failures_per_1000_node_days": _rate(books.failures_per_node_day, 1000.0),
        "mttf_by_size": [
            {
                "gpus": each.size_class,
                "failures": each.jobs.count,
                "hours": _hours(each.jobs),
                "line_hours": each.expected_mttf_seconds and each.expected_mttf_seconds / _HOUR,
            }
            for each in books.sizes
        ],
        "scaling": books.scaling and books.scaling._asdict(),
        "causes": {name: _rate(each, 1000.0) for name, each in books.causes.items()},
        "components": {
            name: {
                "per_node": each.per_node,
                "failures": each.failures,
                "hours": each.rate and _hours(each.rate, _DAY),
            }
            for name, each in books.components.items()
        },
        "goodput_lost_gpu_hours": lost,
        "badput_gpu_hours": {name: each / _HOUR for name, each in books.badput.items()},
        "crash_loops": [each._asdict() for each in books.loops[:_SHOWN]],
        "incidents": [each._asdict() for each in books.incidents[-_SHOWN:]],
        "incident_totals": _incidents(books),
        "out_of_service": [each._asdict() for each in books.out[-_SHOWN:]],
        "degradation": dict(sorted(books.degradation.items(), key=lambda e: -e[1])[:_SHOWN]),
        "lemons": lemons_document(books.lemons),
    }


def lemons_document(lemons: Lemons) -> dict[str, Any]:
    """Return the lemons as JSON can hold them."""
    return {
        "flagged": [
            {
                "node": each.score.node,
                "episodes": each.episodes,
                "faults_per_28_days": [28 * v for v in (each.score.mean, each.score.low,
                                                       each.score.high)],
                "ratio_to_fleet": each.score.ratio,
                "reasons": list(each.reasons),
                "signals": asdict(lemons.signals[each.score.node]),
            }
            for each in lemons.flagged
        ],
        "fleet": len(lemons.scores),
        "base_share": lemons.base_share,
        "right_share": lemons.right_share,
        "lift": lemons.lift,
        "named_by_first_half": lemons.named,
        "thresholds": [each._asdict() for each in lemons.thresholds],
        "returns": lemons.repairs.returns,
        "fault_again_within_days": lemons.repairs.again,
        "probation_days_left": dict(lemons.probation),
    }  # fmt: skip


def _expected(plan: Plan | None) -> dict[str, Any] | None:
    """Return what the formulas expect of the largest job, and with other intervals."""
    if plan is None:
        return None
    best = optimal_checkpoint_seconds(plan)
    return {
        "nodes": plan.nodes,
        "failures_per_node_day": plan.failures_per_node_day,
        "checkpoint_minutes": plan.checkpoint_seconds / 60,
        "restart_minutes": plan.restart_seconds / 60,
        "queue_minutes": plan.queue_seconds / 60,
        "mttf_hours": _finite(plan.mttf_seconds / _HOUR),
        "write_minutes": plan.write_seconds / 60,
        "optimal_checkpoint_minutes": best and best / 60,
        "formulas": {name: expected_ettr(plan, name) for name in ("A", "B", "C")},
        "what_if": [
            {
                "checkpoint_minutes": minutes,
                "ettr": expected_ettr(replace(plan, checkpoint_seconds=60.0 * minutes)),
            }
            for minutes in _WHAT_IF_MINUTES
        ],
    }


def _incidents(books: Books) -> dict[str, Any]:
    found = books.incidents
    recovered = [each.recovery_seconds for each in found if each.recovery_seconds is not None]
    idle = [each.idle_seconds * each.gpus for each in found if each.idle_seconds is not None]
    return {
        "incidents": len(found),
        "mean_lost_minutes": _mean([each.lost_seconds / 60 for each in found]),
        "mean_recovery_minutes": _mean([each / 60 for each in recovered]),
        "idle_gpu_hours_while_diagnosed": sum(idle) / _HOUR if idle else None,
        "incidents_with_known_stall": len(idle),
        "restarts": sum(len(chain.attempts) - 1 for chain in books.chains),
    }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _rate(rate: Rate | None, factor: float) -> dict[str, Any] | None:
    if rate is None:
        return None
    return {
        "count": rate.count,
        "value": rate.value and rate.value * factor,
        "low": rate.low * factor,
        "high": rate.high * factor,
        "dispersion": rate.dispersion,
    }


def _hours(rate: Rate, unit: float = 1.0) -> dict[str, Any]:
    """Return the mean time of a rate in hours; ``unit`` is that of its exposure in seconds."""
    value, low, high = rate.mean_time
    return {
        "value": value and value * unit / _HOUR,
        "low": low * unit / _HOUR,
        "high": _finite(high * unit / _HOUR),
        "dispersion": rate.dispersion,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
