"""What is concluded after a request: by what Slurm says, and by looking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_responder.action import AmbiguousError, LaterError, RejectedError, UnknownError

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerwatch_responder.action import StepState
    from peerwatch_responder.actions.slurm.command import Reply


def conclude(reply: Reply, inspect: Callable[[], StepState], *, harmless: bool) -> str:
    """Return what a request has done.

    Parameters
    ----------
    reply
        What became of it.
    inspect
        Looks whether it is done.
    harmless
        Whether the same request, done twice, is the same as once.

    Raises
    ------
    LaterError, RejectedError, AmbiguousError
        If it was not done, or that is not known.
    """
    if reply.result == "unsent":
        raise LaterError(reply.text)
    try:
        found = inspect()
    except UnknownError as error:
        if reply.result == "rejected":
            raise RejectedError(reply.text) from error
        if harmless or reply.result == "taken":
            raise LaterError(f"{reply.text} Whether it was done: {error}") from error
        raise AmbiguousError(f"{reply.text} Whether it was done: {error}") from error
    if found.status == "done":
        return found.text
    if reply.result == "rejected" or found.status == "other":
        raise RejectedError(f"{reply.text} {found.text}".strip())
    if harmless or reply.result == "taken":
        raise LaterError(f"Not done yet: {reply.text} {found.text}".strip())
    # The request may still be on its way.
    raise AmbiguousError(f"{reply.text} {found.text}".strip())
