"""What the rows of a journal add up to."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from peerwatch_responder.alert import Alert
from peerwatch_responder.policy.state import DoneStep, Response, State, Want

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from peerwatch_responder.audit.row import Kind, Row

# As long as the breaker may look back (breaker.seconds).
_WANT_SECONDS = 86_400.0
# Twice the age at which an alert may still be answered (max_age_seconds).
_ALERT_SECONDS = 2 * 86_400.0


def state_of(rows: Iterable[Row]) -> State:
    """Return what was answered and what is in force, after all rows."""
    books = _Books(State())
    for row in rows:
        _EFFECTS[row.kind](books, row)
    return books.state()


def after(state: State, row: Row) -> State:
    """Return what is known after one more row."""
    books = _Books(state)
    _EFFECTS[row.kind](books, row)
    return books.state()


class _Books:
    """A state that rows change in place: a copy for each of 100,000 rows would take minutes."""

    def __init__(self, state: State) -> None:
        self.paused = state.paused
        self.tripped_at = state.tripped_at
        self.responses = dict(state.responses)
        self.released = dict(state.released)
        self.wants = list(state.wants)
        self.alerts = dict(state.alerts)
        # Not known yet: the first one looks at all.
        self._oldest_want = self._oldest_alert = -math.inf
        self._of_node: dict[tuple[str, str], dict[str, None]] | None = None

    def state(self) -> State:
        """Return what is known."""
        return State(
            responses=self.responses,
            alerts=self.alerts,
            paused=self.paused,
            tripped_at=self.tripped_at,
            wants=tuple(self.wants),
            released=self.released,
        )

    def put(self, response: Response) -> None:
        """Keep a response."""
        if self._of_node is not None:
            self._of_node.setdefault((response.cluster, response.node), {})[response.key] = None
        self.responses[response.key] = response

    def change(self, key: str, **changes: Any) -> None:  # noqa: ANN401 - as the field's
        """Change a response."""
        self.put(replace(self.responses[key], **changes))

    def out_of(self, place: tuple[str, str]) -> list[str]:
        """Return the keys of the responses because of which a node is out."""
        if self._of_node is None:
            self._of_node = {}
            for key, each in self.responses.items():
                self._of_node.setdefault((each.cluster, each.node), {})[key] = None
        own = ((key, self.responses[key]) for key in self._of_node.get(place, ()))
        return [key for key, each in own if (each.cluster, each.node) == place and each.is_out]

    def want(self, want: Want) -> None:
        """Keep a want, and drop those that are too old."""
        if want.at - self._oldest_want >= _WANT_SECONDS:
            self.wants = [each for each in self.wants if want.at - each.at < _WANT_SECONDS]
            self._oldest_want = min((each.at for each in self.wants), default=math.inf)
        self._oldest_want = min(self._oldest_want, want.at)
        self.wants.append(want)

    def hear(self, alert: Alert, now: float) -> None:
        """Keep the newest that is known of an alert, and drop alerts that are too old."""
        self.alerts.pop(alert.fingerprint, None)
        if now - self._oldest_alert >= _ALERT_SECONDS:
            self.alerts = {
                key: each
                for key, each in self.alerts.items()
                if now - _newest(each) < _ALERT_SECONDS
            }
            self._oldest_alert = min(map(_newest, self.alerts.values()), default=math.inf)
        self._oldest_alert = min(self._oldest_alert, _newest(alert))
        self.alerts[alert.fingerprint] = alert


def _newest(alert: Alert) -> float:
    return alert.ends_at or alert.starts_at


def _wanted(books: _Books, row: Row) -> None:
    data = row.data
    books.want(Want(data["key"], data["cluster"], data["node"], row.time))


def _planned(books: _Books, row: Row) -> None:
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
    books.put(response)


def _received(books: _Books, row: Row) -> None:
    data = row.data
    alert = Alert(
        data["labels"],
        data["fingerprint"],
        data["starts_at"],
        data["ends_at"],
        data["annotations"],
    )
    books.hear(alert, row.time)


def _step(books: _Books, row: Row) -> None:
    data = row.data
    step = DoneStep(
        data["action"],
        data["step"],
        is_done=data["phase"] != "begins",
        before=data["before"],
        text=data.get("text", ""),
        at=row.time,
    )
    known = books.responses[data["key"]].steps
    earlier = [each for each in known if (each.action, each.step) != (step.action, step.step)]
    books.change(data["key"], status="acting", steps=(*earlier, step))


def _ended(books: _Books, row: Row) -> None:
    data, known = row.data, books.responses[row.data["key"]]
    undone_from = known.undone_from
    if data["status"] == "undone" and known.status != "undone":
        undone_from = known.status
    books.change(
        data["key"],
        status=data["status"],
        ended_at=row.time,
        text=data.get("text", ""),
        undone_from=undone_from,
    )


def _tried(books: _Books, row: Row) -> None:
    before = books.responses[row.data["key"]].passes
    passes = before + 1 if row.data["result"] == "passed" else 0
    books.change(row.data["key"], passes=passes, tried_at=row.time)


def _returned(books: _Books, row: Row) -> None:
    books.change(row.data["key"], returned_at=row.time)


def _released(books: _Books, row: Row) -> None:
    place = row.data["cluster"], row.data["node"]
    books.released[place] = row.time
    for key in books.out_of(place):
        books.change(key, returned_at=row.time)


def _paused(books: _Books, row: Row) -> None:
    books.paused = row.data["reason"]


def _resumed(books: _Books, _row: Row) -> None:
    books.paused = books.tripped_at = None


def _tripped(books: _Books, row: Row) -> None:
    books.tripped_at = row.time


_EFFECTS: Mapping[Kind, Callable[[_Books, Row], None]] = {
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
