"""Checks a node that is out, before it is put back: who comes back too early fails again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from peerwatch_responder.action import (
    AmbiguousError,
    LaterError,
    PassedError,
    RejectedError,
    UnknownError,
)
from peerwatch_responder.run.execute import target_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_responder.action import Action
    from peerwatch_responder.policy.state import Response, State
    from peerwatch_responder.run.books import Books
    from peerwatch_responder.settings.policy import ProbationConfig

# broken: the check did not work, which says nothing of the node.
Result = Literal["passed", "failed", "broken"]


def due(state: State, probation: ProbationConfig, now: float) -> Iterator[Response]:
    """Yield the responses whose nodes are out and are to be checked now.

    Parameters
    ----------
    state
        What the journal says.
    probation
        When and how often.
    now
        Unix seconds.
    """
    if not probation.automatic or state.paused is not None or state.tripped_at is not None:
        return
    for each in state.responses.values():
        # What is stuck is a person's.
        if each.status != "done" or not each.is_out or each.ended_at is None:
            continue
        wait = probation.after_seconds if each.tried_at is None else probation.interval_seconds
        if now - (each.tried_at or each.ended_at) >= wait:
            yield each


def probe(response: Response, books: Books, check: Action) -> tuple[Result, str]:
    """Check the node of a response, write down how that ended, and return it with its sentence."""
    result, text = _checked(response, check)
    books.write("tried", key=response.key, result=result, text=text)
    return result, text


def _checked(response: Response, check: Action) -> tuple[Result, str]:
    try:
        texts = [step.do({}) for step in check.steps(target_of(response))]
    except PassedError as error:
        return "passed", str(error)
    except (UnknownError, LaterError, RejectedError, AmbiguousError) as error:
        return "broken", str(error)
    return "failed", "; ".join(texts)
