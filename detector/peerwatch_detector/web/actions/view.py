"""The room of actions: what the responder did and would do, from the series that it publishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading.history_reader import History
from peerwatch_detector.reading.instant_reader import Answers
from peerwatch_detector.web.ago import date
from peerwatch_detector.web.incident.record import rows_of
from peerwatch_detector.web.state import StateView

# Chosen: a week, as long as an engineer is on call.
DAYS = 7
_BACK = f"[{DAYS}d:1m]"
QUERIES: Mapping[str, str] = {
    "up": "max(peerwatch_response_dry_run)",
    "paused": "max(peerwatch_response_paused)",
    "tripped": "max(peerwatch_response_breaker_tripped)",
    "out": "max(peerwatch_response_nodes_out)",
    "pending": "max(peerwatch_response_pending)",
    "budget": "min by (budget) (peerwatch_response_budget_remaining)",
    "servers": "min by (server) (peerwatch_response_server_up)",
    "waiting": "max by (reason) (peerwatch_response_waiting) > 0",
    "stuck": "group by (node, job_id, key) (peerwatch_response_stuck_info)",
    "under_way": (
        "min by (node, job_id, key) "
        "(min_over_time((timestamp(peerwatch_response_under_way_info))[10m:15s]))"
    ),
    "ended": (
        "min by (node, job_id, key, result, summary) "
        f"(min_over_time((timestamp(peerwatch_response_ended_info)){_BACK}))"
    ),
    "dry_run": (
        "min by (node, job_id, key, result, summary) (min_over_time((timestamp("
        "peerwatch_response_ended_info and on (instance) peerwatch_response_dry_run == 1)"
        f"){_BACK}))"
    ),
    "totals": "sum by (action, result) (peerwatch_response_actions_total) > 0",
    "decisions": (
        f"sum by (decision, reason) (increase(peerwatch_response_decisions_total[{DAYS}d])) >= 0.5"
    ),
    "advice": f"sum by (advice, reason) (increase(peerwatch_retry_advice_total[{DAYS}d])) >= 0.5",
    "last": f"max(max_over_time(timestamp(peerwatch_response_dry_run){_BACK}))",
}
_BUDGETS = {"hour": "within an hour", "concurrent": "at once"}
_LEVELS = {"done": "good", "failed": "bad", "stuck": "bad"}


@dataclass(frozen=True, slots=True)
class ActionRow:
    """One response: when it ended or began, about whom, how it ended, what was done."""

    when: str
    node: str
    job_id: str
    result: str
    level: str
    summary: str


@dataclass(frozen=True, slots=True)
class Count:
    """How often something was; ``what`` and ``why`` are labels, for a person."""

    what: str
    why: str
    count: str


@dataclass(frozen=True, slots=True)
class ActionsView:
    """The room of actions.

    Parameters
    ----------
    state
        Whether there is a responder, and what it may do.
    facts
        (name, text) about its limits.
    rows
        Responses of the last days, the last first.
    totals, decisions, advice
        Actions ever, decisions and advice of the last days.
    note
        What could not be read.
    dry_run
        Whether what is counted was only decided.
    """

    state: StateView
    facts: tuple[tuple[str, str], ...] = ()
    rows: tuple[ActionRow, ...] = ()
    totals: tuple[Count, ...] = ()
    decisions: tuple[Count, ...] = ()
    advice: tuple[Count, ...] = ()
    note: str = ""
    dry_run: bool = False


def actions_view(history: History | None, now: float) -> ActionsView:
    """Return what the responder did, and would do, by its series."""
    if history is None:
        return ActionsView(StateView("running", "Not read: this detector asks no Prometheus."))
    try:
        answers = history.at(QUERIES, now)
    except ReadError as error:
        return ActionsView(StateView("running", f"Prometheus did not answer: {error}", "warn"))
    refused = dict.fromkeys(str(each) for each in answers.values() if isinstance(each, ReadError))
    return ActionsView(
        _state(answers),
        tuple(_facts(answers)),
        tuple(_rows(answers)),
        _counts(answers, "totals", "action", "result"),
        _counts(answers, "decisions", "decision", "reason"),
        _counts(answers, "advice", "advice", "reason"),
        "; ".join(refused),
        bool(_value(answers, "up")),
    )


def _value(answers: Answers, name: str) -> float | None:
    return next((value for _, value in rows_of(answers, name)), None)


def _state(answers: Answers) -> StateView:
    dry_run = _value(answers, "up")
    if dry_run is None:
        last = _value(answers, "last")
        if last is not None:
            return StateView(
                "running",
                f"The responder publishes nothing any more: last seen {date(last)}.",
                "bad",
            )
        return StateView(
            "running",
            "No responder is configured, or Prometheus does not scrape it: nothing is done about a "
            "finding unless a person does it.",
        )
    if _value(answers, "tripped"):
        return StateView(
            "running",
            "Stopped: too many nodes were wanted at once. A person must reset the breaker.",
            "bad",
        )
    if _value(answers, "paused"):
        return StateView("running", "Paused by a person: nothing is done.", "warn")
    if dry_run:
        return StateView("running", "Dry run: everything is decided, and nothing is done.", "warn")
    return StateView("running", "The responder acts.", "good")


def _facts(answers: Answers) -> list[tuple[str, str]]:
    facts = []
    for name, title in (("out", "nodes out of work"), ("pending", "responses under way")):
        if (value := _value(answers, name)) is not None:
            facts.append((title, f"{value:.0f}"))
    facts += [
        (
            f"may still be taken out {_BUDGETS.get(labels.get('budget', ''), '')}".strip(),
            f"{value:.0f}",
        )
        for labels, value in rows_of(answers, "budget")
    ]
    down = [labels.get("server", "") for labels, up in rows_of(answers, "servers") if not up]
    if down:
        facts.append(("cannot be asked, so nothing is done", ", ".join(sorted(down))))
    facts += [
        (f"alerts that wait: {labels.get('reason', '')}", f"{value:.0f}")
        for labels, value in rows_of(answers, "waiting")
    ]
    return facts


def _rows(answers: Answers) -> list[ActionRow]:
    found = []
    dry_run = [labels for labels, _ in rows_of(answers, "dry_run")]
    for labels, time in rows_of(answers, "ended"):
        result = labels.get("result", "")
        level = _LEVELS.get(result, "")
        if labels in dry_run:
            result, level = f"dry run: {result}", ""
        found.append((time, result, level, labels, labels.get("summary", "")))
    for labels, time in rows_of(answers, "under_way"):
        found.append((time, "under way or just ended", "warn", labels, ""))
    for labels, _ in rows_of(answers, "stuck"):
        text = "ended between two steps: a person is needed"
        found.append((float("inf"), "stuck", "bad", labels, text))
    ended = {labels.get("key", "") for _, _, _, labels, summary in found if summary}
    found = [each for each in found if each[4] or each[3].get("key", "") not in ended]
    found.sort(key=lambda each: -each[0])
    return [
        ActionRow(
            "now" if time == float("inf") else date(time),
            labels.get("node", ""),
            labels.get("job_id", ""),
            result,
            level,
            summary,
        )
        for time, result, level, labels, summary in found[:200]
    ]


def _counts(answers: Answers, name: str, what: str, why: str) -> tuple[Count, ...]:
    found = sorted(rows_of(answers, name), key=lambda row: -row[1])
    return tuple(
        Count(
            labels.get(what, "").replace("_", " "),
            labels.get(why, "").replace("_", " "),
            f"{value:.0f}",
        )
        for labels, value in found
    )
