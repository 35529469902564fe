"""What is concluded after a request: by what Slurm says, and by looking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_responder.action import AmbiguousError, LaterError, RejectedError, UnknownError

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerwatch_responder.action import Look
    from peerwatch_responder.actions.slurm.command import Told


def settle(told: Told, look: Callable[[], Look], *, harmless: bool) -> str:
    """Return what a request has done.

    Parameters
    ----------
    told
        What became of it.
    look
        Looks whether it is done.
    harmless
        Whether the same request, done twice, is the same as once.

    Raises
    ------
    LaterError, RejectedError, AmbiguousError
        If it was not done, or that is not known.
    """
    if told.result == "unsent":
        raise LaterError(told.text)
    try:
        found = look()
    except UnknownError as error:
        if told.result == "rejected":
            raise RejectedError(told.text) from error
        if harmless or told.result == "taken":
            raise LaterError(f"{told.text} Whether it was done: {error}") from error
        raise AmbiguousError(f"{told.text} Whether it was done: {error}") from error
    if found.standing == "done":
        return found.text
    if told.result == "rejected" or found.standing == "other":
        raise RejectedError(f"{told.text} {found.text}".strip())
    if harmless or told.result == "taken":
        raise LaterError(f"Not done yet: {told.text} {found.text}".strip())
    # The request may still be on its way.
    raise AmbiguousError(f"{told.text} {found.text}".strip())
