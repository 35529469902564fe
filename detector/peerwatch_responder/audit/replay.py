"""What the rows of a journal add up to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from peerwatch_responder.alert import Alert
from peerwatch_responder.policy.state import DoneStep, Response, State, Want

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from peerwatch_responder.audit.row import Kind, Row

# Longer than the breaker may look back.
_WANT_SECONDS = 86_400.0
# Longer than the oldest alert that may be answered.
_ALERT_SECONDS = 2 * 86_400.0


def state_of(rows: Iterable[Row]) -> State:
    """Return what was answered and what is in force, after all rows."""
    state = State()
    for row in rows:
        state = after(state, row)
    return state


def after(state: State, row: Row) -> State:
    """Return what is known after one more row."""
    return _EFFECTS[row.kind](state, row)


def _wanted(state: State, row: Row) -> State:
    data = row.data
    want = Want(data["key"], data["cluster"], data["node"], row.time)
    recent = (each for each in state.wants if row.time - each.at < _WANT_SECONDS)
    return replace(state, wants=(*recent, want))


def _planned(state: State, row: Row) -> State:
    data = row.data
    response = Response(
        key=data["key"],
        cluster=data["cluster"],
        node=data["node"],
        job_id=data["job_id"],
        actions=tuple(data["actions"]),
        status="planned" if row.kind == "planned" else "refused",
        planned_at=row.time,
        fingerprint=data["fingerprint"],
        starts_at=data["starts_at"],
        ended_at=None if row.kind == "planned" else row.time,
        text="" if row.kind == "planned" else data.get("text", ""),
        labels=data.get("labels", {}),
        takes_out=data.get("takes_out", True),
        why=data.get("text", ""),
    )
    return _with(state, response)


def _received(state: State, row: Row) -> State:
    data = row.data
    alert = Alert(
        data["labels"],
        data["fingerprint"],
        data["starts_at"],
        data["ends_at"],
        data["annotations"],
    )
    alerts = {
        key: each
        for key, each in state.alerts.items()
        if key != alert.fingerprint and row.time - (each.ends_at or each.starts_at) < _ALERT_SECONDS
    }
    return replace(state, alerts={**alerts, alert.fingerprint: alert})


def _step(state: State, row: Row) -> State:
    data = row.data
    step = DoneStep(
        data["action"],
        data["step"],
        is_done=data["phase"] != "begins",
        before=data["before"],
        text=data.get("text", ""),
        at=row.time,
    )
    known = state.responses[data["key"]].steps
    earlier = [each for each in known if (each.action, each.step) != (step.action, step.step)]
    return _changed(state, data, status="acting", steps=(*earlier, step))


def _ended(state: State, row: Row) -> State:
    data, known = row.data, state.responses[row.data["key"]]
    undone_from = known.undone_from
    if data["status"] == "undone" and known.status != "undone":
        undone_from = known.status
    return _changed(
        state,
        data,
        status=data["status"],
        ended_at=row.time,
        text=data.get("text", ""),
        undone_from=undone_from,
    )


def _tried(state: State, row: Row) -> State:
    before = state.responses[row.data["key"]].passes
    passes = before + 1 if row.data["result"] == "passed" else 0
    return _changed(state, row.data, passes=passes, tried_at=row.time)


def _returned(state: State, row: Row) -> State:
    return _changed(state, row.data, returned_at=row.time)


def _released(state: State, row: Row) -> State:
    place = row.data["cluster"], row.data["node"]
    state = replace(state, released={**state.released, place: row.time})
    responses = {
        key: replace(each, returned_at=row.time)
        if (each.cluster, each.node) == place and each.is_out
        else each
        for key, each in state.responses.items()
    }
    return replace(state, responses=responses)


def _paused(state: State, row: Row) -> State:
    return replace(state, paused=row.data["reason"])


def _resumed(state: State, _row: Row) -> State:
    return replace(state, paused=None, tripped_at=None)


def _tripped(state: State, row: Row) -> State:
    return replace(state, tripped_at=row.time)


def _changed(state: State, data: Mapping[str, Any], **changes: Any) -> State:  # noqa: ANN401
    return _with(state, replace(state.responses[data["key"]], **changes))


def _with(state: State, response: Response) -> State:
    return replace(state, responses={**state.responses, response.key: response})


_EFFECTS: Mapping[Kind, Callable[[State, Row], State]] = {
    "received": _received,
    "wanted": _wanted,
    "planned": _planned,
    "refused": _planned,
    "step": _step,
    "ended": _ended,
    "tried": _tried,
    "returned": _returned,
    "released": _released,
    "paused": _paused,
    "resumed": _resumed,
    "tripped": _tripped,
}
