"""Gives an order to a training driver by a command, with the order on its standard input."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_responder.action import (
    AmbiguousError,
    LaterError,
    RejectedError,
    StepState,
    register,
)
from peerwatch_responder.actions.driver.order import (
    DriverOptions,
    body_of,
    identity,
    starts_again,
    understood,
)
from peerwatch_responder.child_process import run_child

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_responder.action import Before, Target

# As sysexits.h has it: nothing was done, try again.
_TEMPORARY = 75


class CommandOptions(DriverOptions):
    """Settings of ``driver_command``."""

    command: tuple[str, ...] = Field(
        min_length=1, description="Program and arguments; no shell takes part."
    )


@register(
    "driver_command",
    "gives an order to a training driver by a command",
    takes_out=False,
    options=CommandOptions,
    restarts=starts_again,
)
class DriverCommand:
    """Runs a command for each order.

    The command answers on standard output with JSON, ``{"outcome": "done"}`` or ``"rejected"``,
    and exit status 0. Status 75 says that nothing was done and that it may be tried again; any
    other, or none until the deadline, leaves open what was done.
    """

    def __init__(self, options: CommandOptions) -> None:
        self._options = options

    def steps(self, target: Target) -> Sequence[_Order]:
        """Return the one step there is."""
        return [_Order(self._options, target, self._options.want)]

    def undo(self, target: Target, step: str, before: Before) -> str:
        """Give the opposite order, where there is one; otherwise as ``Action.undo``."""
        if self._options.undo is None:
            return "has no opposite order"
        return _Order(self._options, target, self._options.undo).do(before)


class _Order:
    def __init__(self, options: CommandOptions, target: Target, want: str) -> None:
        self._options = options
        self._target = target
        self.name = want

    def inspect(self) -> StepState:
        # Only the driver knows, by the order's identity.
        return StepState("open", f"{self.name} by {self._options.command[0]}")

    def do(self, before: Before) -> str:
        order = identity(self._target, self.name, "command")
        seconds = self._options.deadline_seconds
        try:
            ended = run_child(
                self._options.command,
                seconds,
                given=body_of(self._target, self.name, order, seconds),
                environment={**os.environ, "PEERWATCH_ACTION_ID": order},
                asks_first=True,
            )
        except OSError as error:
            raise RejectedError(f"{self._options.command[0]}: {error.strerror}") from error
        if ended.status is None:
            raise AmbiguousError(f"It was not done after {seconds:.0f} s.")
        if ended.status == _TEMPORARY:
            raise LaterError("The command asks to try again (status 75).")
        if ended.status != 0:
            raise AmbiguousError(f"The command ended with status {ended.status}.")
        return understood(ended.output)
