"""Puts back what a response has changed, in reverse order, where the marks are still ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_responder.action import AmbiguousError, LaterError, RejectedError, UnknownError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from peerwatch_responder.action import Action, Target
    from peerwatch_responder.policy.state import Response


def undo(
    response: Response, target: Target, actions: Mapping[str, Action]
) -> Iterator[tuple[str, bool]]:
    """Undo the steps of a response, the last one first.

    A step that may have been done is undone as well: its action looks first.

    Parameters
    ----------
    response
        What was done.
    target
        Whom it was about.
    actions
        All actions by name.

    Yields
    ------
    tuple of str and bool
        For each step what was done about it, and whether it is undone now.
    """
    for each in reversed(response.steps):
        what = f"{each.action}: {each.step}"
        action = actions.get(each.action)
        if action is None:
            yield f"{what}: there is no such action any more; undo it by hand", False
            continue
        try:
            yield f"{what}: {action.undo(target, each.step, each.before)}", True
        except (UnknownError, LaterError, RejectedError, AmbiguousError) as error:
            yield f"{what}: {error}", False
