"""The room of reliability, from the series that peerwatch-reliability publishes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading.history_reader import History
from peerwatch_detector.reading.instant_reader import Answers
from peerwatch_detector.units import number
from peerwatch_detector.web.ago import date
from peerwatch_detector.web.incident.record import rows_of

QUERIES: Mapping[str, str] = {
    "made": "max(peerwatch_reliability_last_success_timestamp_seconds)",
    "target": "max(peerwatch_reliability_ettr_target_ratio)",
    "ettr": "max by (size_class, bound) (peerwatch_reliability_ettr_ratio)",
    "expected": "max by (checkpoint_minutes) (peerwatch_reliability_ettr_expected_ratio)",
    "mttf": "max by (size_class, bound) (peerwatch_reliability_mttf_seconds)",
    "rate": "max by (bound) (peerwatch_reliability_failures_per_node_day)",
    "failures": "sum by (cause) (peerwatch_reliability_failures_total) > 0",
    "lost": ("sum by (cause, order) (peerwatch_reliability_goodput_loss_gpu_seconds_total) > 0"),
    "lemons": "max by (node, reason) (peerwatch_lemon) == 1",
    "scores": "topk(50, max by (node) (peerwatch_lemon_score))",
    "missing": "max(peerwatch_reliability_missing)",
}
_SECONDS_OF_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class SizeRow:
    """Jobs of one size, in words; empty where it is not known."""

    size: str
    ettr: str
    ettr_range: str
    below_target: bool
    mttf: str
    mttf_range: str
    share: float


@dataclass(frozen=True, slots=True)
class LossRow:
    """What failures of one cause cost."""

    cause: str
    failures: str
    first: str
    second: str
    share: float


@dataclass(frozen=True, slots=True)
class LemonRow:
    """A node that fails again and again."""

    node: str
    reason: str
    score: str


@dataclass(frozen=True, slots=True)
class ReliabilityView:
    """The room of reliability; ``state`` says whether there are books, and of when."""

    state: str
    level: str
    target: str = ""
    rate: str = ""
    sizes: tuple[SizeRow, ...] = ()
    losses: tuple[LossRow, ...] = ()
    lemons: tuple[LemonRow, ...] = ()
    expected: tuple[tuple[str, str], ...] = ()
    missing: int = 0
    known: bool = False


def reliability_view(history: History | None, now: float) -> ReliabilityView:
    """Return the books by their series."""
    if history is None:
        return ReliabilityView("Not read: this detector asks no Prometheus.", "")
    try:
        answers = history.at(QUERIES, now)
    except ReadError as error:
        return ReliabilityView(f"Prometheus did not answer: {error}", "warn")
    made = _first(answers, "made")
    if made is None:
        return ReliabilityView(
            "No books are kept: peerwatch-reliability does not run, or Prometheus does not scrape "
            "it.",
            "",
        )
    if not made:
        return ReliabilityView("peerwatch-reliability runs, and has made no books yet.", "warn")
    target = _first(answers, "target")
    missing = int(_first(answers, "missing") or 0)
    return ReliabilityView(
        f"Books of {date(made)}.",
        "",
        "" if target is None else _percent(target),
        _rate(answers),
        tuple(_sizes(answers, target)),
        tuple(_losses(answers)),
        tuple(_lemons(answers)),
        tuple(_expected(answers)),
        missing,
        known=True,
    )


def _first(answers: Answers, name: str) -> float | None:
    return next((value for _, value in rows_of(answers, name)), None)


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.1f} %"


def _hours(seconds: float) -> str:
    hours = seconds / _SECONDS_OF_HOUR
    return f"{number(hours)} h" if hours < 1000 else f"{number(hours / 24)} days"


def _rate(answers: Answers) -> str:
    bounds = {labels.get("bound", ""): 1000 * value for labels, value in rows_of(answers, "rate")}
    if "value" not in bounds:
        return ""
    text = f"{number(bounds['value'])} failures per 1,000 node-days"
    if {"low", "high"} <= bounds.keys():
        text += f" ({number(bounds['low'])} to {number(bounds['high'])})"
    return text


def _by_size(answers: Answers, name: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for labels, value in rows_of(answers, name):
        found.setdefault(labels.get("size_class", ""), {})[labels.get("bound", "")] = value
    return found


def _sizes(answers: Answers, target: float | None) -> list[SizeRow]:
    ettr, mttf = _by_size(answers, "ettr"), _by_size(answers, "mttf")

    def order(size: str) -> tuple[bool, float, str]:
        return size == "all", float(size) if size.isdecimal() else 0.0, size

    rows = []
    for size in sorted(ettr.keys() | mttf.keys(), key=order):
        ratios, times = ettr.get(size, {}), mttf.get(size, {})
        expected, mean = ratios.get("expected"), times.get("value")
        rows.append(
            SizeRow(
                "all jobs" if size == "all" else f"up to {size} GPUs" if size.isdecimal() else size,
                "" if expected is None else _percent(expected),
                _range(ratios, _percent),
                expected is not None and target is not None and expected < target,
                "" if mean is None else _hours(mean),
                _range(times, _hours),
                expected or 0.0,
            )
        )
    return rows


def _range(bounds: Mapping[str, float], write: Callable[[float], str]) -> str:
    if not {"low", "high"} <= bounds.keys() or bounds["low"] == bounds["high"]:
        return ""
    return f"{write(bounds['low'])} to {write(bounds['high'])}"


def _losses(answers: Answers) -> list[LossRow]:
    failures = {labels.get("cause", ""): value for labels, value in rows_of(answers, "failures")}
    lost: dict[str, dict[str, float]] = {}
    for labels, value in rows_of(answers, "lost"):
        lost.setdefault(labels.get("cause", ""), {})[labels.get("order", "")] = value
    totals = {cause: sum(orders.values()) for cause, orders in lost.items()}
    most = max(totals.values(), default=0.0)
    causes = sorted(failures.keys() | lost.keys(), key=lambda cause: -totals.get(cause, 0.0))
    return [
        LossRow(
            cause.replace("_", " "),
            f"{failures[cause]:.0f}" if cause in failures else "",
            _gpu_hours(lost.get(cause, {}).get("first")),
            _gpu_hours(lost.get(cause, {}).get("second")),
            totals.get(cause, 0.0) / most if most else 0.0,
        )
        for cause in causes
    ]


def _gpu_hours(seconds: float | None) -> str:
    return "" if seconds is None else f"{number(seconds / _SECONDS_OF_HOUR)} GPU hours"


def _lemons(answers: Answers) -> list[LemonRow]:
    scores = {labels.get("node", ""): value for labels, value in rows_of(answers, "scores")}
    found = [
        (scores.get(labels.get("node", ""), 0.0), labels)
        for labels, _ in rows_of(answers, "lemons")
    ]
    found.sort(key=lambda each: (-each[0], each[1].get("node", "")))
    return [
        LemonRow(labels.get("node", ""), labels.get("reason", "").replace("_", " "), f"{score:.1f}")
        for score, labels in found[:100]
    ]


def _expected(answers: Answers) -> list[tuple[str, str]]:
    found = [
        (float(minutes), value)
        for labels, value in rows_of(answers, "expected")
        if (minutes := labels.get("checkpoint_minutes", "")).replace(".", "", 1).isdecimal()
    ]
    return [(f"{minutes:g} min", _percent(value)) for minutes, value in sorted(found)]
