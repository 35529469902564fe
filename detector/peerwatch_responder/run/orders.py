"""What a person orders: pause, resume, undo; to a running responder, or to its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.errors import PeerwatchError
from peerwatch_responder.policy.state import UNDER_WAY
from peerwatch_responder.run.execute import target_of
from peerwatch_responder.run.probation import probe
from peerwatch_responder.run.undo import undo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_responder.action import Action
    from peerwatch_responder.policy.state import Response
    from peerwatch_responder.run.books import Books
    from peerwatch_responder.settings.policy import ProbationConfig

# Chosen: a person's reason in some sentences; so much of it is journalled.
_MAX_CHARACTERS = 500


class OrderError(PeerwatchError):
    """An order cannot be obeyed; the message says why."""


def obey(
    order: object,
    books: Books,
    actions: Mapping[str, Action],
    probation: ProbationConfig | None = None,
) -> list[str]:
    """Do what a person orders; return what was done, a sentence each.

    Parameters
    ----------
    order
        ``{"order": "pause", "reason": ...}``, ``{"order": "resume"}`` or
        ``{"order": "undo", "key": ...}``, with ``"unchecked": True`` without probation.
    books
        What was done so far.
    actions
        All actions by name.
    probation
        What a node must pass before it is put back; None: nothing.

    Raises
    ------
    OrderError
        If there is no such order or response, or it cannot be undone.
    """
    if not isinstance(order, dict):
        raise OrderError("An order is a JSON object.")
    what = order.get("order")
    if what == "pause":
        reason = order.get("reason")
        if not isinstance(reason, str) or not reason.strip():
            raise OrderError("A pause has a reason.")
        books.write("paused", reason=reason[:_MAX_CHARACTERS])
        return ["Paused; what is under way goes on to its end, and nothing else begins."]
    if what == "resume":
        books.write("resumed")
        return ["Resumed; the breaker is reset."]
    if what == "undo":
        response = _response(order.get("key"), books)
        if probation is not None and response.is_out and order.get("unchecked") is not True:
            result, text = probe(response, books, actions[probation.check])
            if result != "passed":
                raise OrderError(
                    f"Node {response.node} stays out: {text} To put it back all the same, say "
                    f"`undo --unchecked {response.key}`."
                )
        return put_back(response, books, actions)
    raise OrderError(f"There is no order {str(what)[:50]!r}; there are pause, resume and undo.")


def _response(key: object, books: Books) -> Response:
    response = books.state.responses.get(key) if isinstance(key, str) else None
    if response is None:
        raise OrderError(f"There is no response {str(key)[:50]!r}; `history` shows all.")
    if response.status in UNDER_WAY:
        raise OrderError(f"Response {response.key} is under way; undo it when it has ended.")
    if response.status in {"refused", "passed", "undone"}:
        raise OrderError(f"Response {response.key} is {response.status}: nothing is to be undone.")
    return response


def put_back(response: Response, books: Books, actions: Mapping[str, Action]) -> list[str]:
    """Undo a response; return what was done, a sentence each.

    Raises
    ------
    OrderError
        If not all could be undone.
    """
    texts, undone = [], True
    for text, is_undone in undo(response, target_of(response), actions):
        texts.append(text)
        undone = undone and is_undone
    if not undone:
        raise OrderError("Not all could be undone: " + "; ".join(texts))
    books.write("ended", key=response.key, status="undone", text="; ".join(texts))
    books.write("returned", key=response.key)
    return texts
