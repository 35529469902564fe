"""What was done and what waits, newest first: bounded, and harmless on whatever shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peerwatch_common.logs import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_responder.policy.plan import Decision, Plan
    from peerwatch_responder.policy.state import DoneStep, Response, State

# Chosen: more than a day of responses (nodes_per_hour is 3), and several times a response's steps.
MAX_RESPONSES = 100
MAX_WAITING = 100
MAX_STEPS = 50
# Labels and answers come from elsewhere and may be of any length. Chosen: a line, and a paragraph.
_NAME_CHARACTERS = 120
_TEXT_CHARACTERS = 400


def history_of(
    state: State,
    plan: Plan | None,
    unknown: Mapping[str, str],
    *,
    now: float,
    dry_run: bool,
) -> dict[str, Any]:
    """Return what a person wants to see, as JSON can hold it.

    Parameters
    ----------
    state
        What was done.
    plan
        The newest one; None: nothing has been decided yet.
    unknown
        What could not be learnt for it, by whom.
    now
        Unix seconds.
    dry_run
        Whether nothing is done.
    """
    # Of one second the last one first, as the journal has them.
    responses = sorted(state.responses.values(), key=lambda each: each.planned_at)[::-1]
    decisions = () if plan is None else plan.decisions
    waiting = [each for each in decisions if each.verdict == "wait"]
    return {
        "time": now,
        "dry_run": dry_run,
        "decided": plan is not None,
        "paused": None if state.paused is None else _text(state.paused),
        "tripped_at": state.tripped_at,
        "unknown": {name: _text(why) for name, why in unknown.items()},
        "responses_total": len(responses),
        "responses": [_response(each, dry_run=dry_run) for each in responses[:MAX_RESPONSES]],
        "waiting_total": len(waiting),
        "waiting": [_waiting(each) for each in waiting[:MAX_WAITING]],
    }


def _response(response: Response, *, dry_run: bool) -> dict[str, Any]:
    # Not what a person has put back already.
    can_be_undone = (
        response.status in {"done", "failed", "stuck"}
        and bool(response.steps)
        and response.returned_at is None
        and not dry_run
    )
    return {
        "key": response.key,
        "status": response.status,
        "alert": _name(response.labels.get("alertname", "")),
        "metric": _name(response.labels.get("metric", "")),
        "cluster": _name(response.cluster),
        "node": _name(response.node),
        "job_id": _name(response.job_id),
        "actions": list(response.actions),
        "why": _text(response.why),
        "text": _text(response.text),
        "starts_at": response.starts_at,
        "planned_at": response.planned_at,
        "ended_at": response.ended_at,
        "returned_at": response.returned_at,
        "is_out": response.is_out and not dry_run,
        "steps_total": len(response.steps),
        "steps": [_step(each, response, dry_run=dry_run) for each in response.steps[-MAX_STEPS:]],
        "undo": f"peerwatch-responder undo {response.key}" if can_be_undone else None,
    }


def _step(step: DoneStep, response: Response, *, dry_run: bool) -> dict[str, Any]:
    if dry_run:
        outcome = "dry_run"
    elif response.status == "undone":
        outcome = "undone"
    else:
        outcome = "done" if step.is_done else "begun"
    return {
        "action": step.action,
        "step": _name(step.step),
        "outcome": outcome,
        "at": step.at,
        "text": _text(step.text),
    }


def _waiting(decision: Decision) -> dict[str, Any]:
    alert = decision.alert
    return {
        "reason": decision.reason,
        "text": _text(decision.text),
        "rule": decision.rule,
        "actions": list(decision.actions),
        "alert": _name(alert.name),
        "cluster": _name(alert.cluster),
        "node": _name(alert.node),
        "job_id": _name(alert.job_id),
        "starts_at": alert.starts_at,
    }


def _name(text: str) -> str:
    return _cut(text, _NAME_CHARACTERS)


def _text(text: str) -> str:
    return _cut(text, _TEXT_CHARACTERS)


def _cut(text: str, characters: int) -> str:
    # Cut before as well: of a text of megabytes only the beginning is looked at.
    plain = one_line(text[: characters + 1])
    return plain if len(plain) <= characters else plain[: characters - 1] + "…"
