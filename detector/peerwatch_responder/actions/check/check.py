"""Runs ``peerwatch-check`` on the node: only one that fails is taken out."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from pydantic import Field

from peerwatch_common.logs import one_line
from peerwatch_responder.action import (
    ActionOptions,
    PassedError,
    RejectedError,
    StepState,
    register,
)
from peerwatch_responder.child_process import run_child

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_responder.action import Before, Target

# It goes into a command line: no flag, no path, no other program's syntax.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_WORD = re.compile(r"\{(?:node|job_id)\}")
# Of peerwatch-check: all passed, one warned, one failed.
_PASS, _WARN, _FAIL = 0, 1, 2
# Chosen: thousands of records of checks; what more there is are no records.
_MAX_BYTES = 1024**2
# As much as is quoted of a line of a log (redact.LONGEST), which has room for three failures.
_SHOWN_CHARACTERS = 300
_SHOWN_FAILURES = 3


class CheckOptions(ActionOptions):
    """Settings of ``check``."""

    command: tuple[str, ...] = Field(
        min_length=1,
        description="Program and arguments that run peerwatch-check on the node; {node} and "
        "{job_id} are replaced. No shell takes part.",
    )
    timeout_seconds: float = Field(
        default=300.0, gt=0, le=7200, description="How long it may take; then it did not work."
    )


@register(
    "check",
    "runs peerwatch-check; only a node that fails is answered",
    takes_out=False,
    options=CheckOptions,
)
class Check:
    """Runs a command that ends as ``peerwatch-check`` does.

    Status 2 (a check failed, twice) lets the response go on. 0 and 1 end it as ``passed``: what was
    done before is undone. Any other, no end in time, and a command that cannot be started say
    nothing about the node: nothing more is done.
    """

    def __init__(self, options: CheckOptions) -> None:
        self._options = options

    def steps(self, target: Target) -> Sequence[_Run]:
        """Return the one step there is."""
        return [_Run(self._options, target)]

    def undo(self, target: Target, step: str, before: Before) -> str:
        """Do nothing; otherwise as ``Action.undo``."""
        return "a check changes nothing"


class Checked(NamedTuple):
    """How a check ended.

    Parameters
    ----------
    status
        The command's exit status; None: it was ended, or could not be started.
    text
        What failed, or why it did not work.
    """

    status: int | None
    text: str


class _Run:
    name = "check"

    def __init__(self, options: CheckOptions, target: Target) -> None:
        self._options = options
        self._target = target

    def inspect(self) -> StepState:
        return StepState("open", f"checks {self._target.node} by {self._options.command[0]}")

    def do(self, before: Before) -> str:
        checked = self._run()
        if checked.status == _FAIL:
            return f"{self._target.node} fails: {checked.text}"
        if checked.status in {_PASS, _WARN}:
            raise PassedError(f"{self._target.node} passes its checks. {checked.text}".strip())
        raise RejectedError(f"The check did not work: {checked.text}")

    def _run(self) -> Checked:
        words = {"{node}": self._target.node, "{job_id}": self._target.job_id}
        for word, value in words.items():
            used = any(word in part for part in self._options.command)
            if used and not _NAME.fullmatch(value):
                return Checked(None, f"{value[:50]!r} is no name for a command line")
        command = [_WORD.sub(lambda found: words[found[0]], each) for each in self._options.command]
        seconds = self._options.timeout_seconds
        try:
            status, output, errors = run_child(command, seconds)
        except OSError as error:
            return Checked(None, f"{command[0]}: {error.strerror}")
        if status is None:
            return Checked(None, f"it did not end within {seconds:g} s")
        if status == _FAIL:
            return Checked(_FAIL, _failures(output[:_MAX_BYTES]) or _shown(errors or output))
        if status in {_PASS, _WARN}:
            return Checked(status, "")
        return Checked(status, f"status {status} {_shown(errors or output)}")


def _failures(output: bytes) -> str:
    """Return which checks failed, by their records; empty: the output has none."""
    failed = []
    for line in output.splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and record.get("status") == "fail":
            failed.append(f"{record.get('check')}: {record.get('message')}")
    more = f" and {len(failed) - _SHOWN_FAILURES} more" if len(failed) > _SHOWN_FAILURES else ""
    return _cut("; ".join(failed[:_SHOWN_FAILURES])) + more


def _shown(output: bytes) -> str:
    return _cut(output[:_MAX_BYTES].decode(errors="replace").strip())


def _cut(text: str) -> str:
    return one_line(text)[:_SHOWN_CHARACTERS]
