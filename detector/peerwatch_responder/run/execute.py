"""Does the steps of one response, each once, whatever crashes in between."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from peerwatch_common.logs import one_line
from peerwatch_responder.action import (
    AmbiguousError,
    LaterError,
    PassedError,
    RejectedError,
    Target,
    UnknownError,
)
from peerwatch_responder.run.restarts import Restarts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from peerwatch_responder.action import Action, Before, Step, StepState
    from peerwatch_responder.policy.state import Response, Status

_LOG = logging.getLogger(__name__)

Phase = Literal["begins", "done", "would"]
# Chosen: two lines of a terminal, where Slurm shows it; stamp, key and words take 62 of them.
_REASON_CHARACTERS = 200
_WHAT_CHARACTERS = 100


class EndedError(Exception):
    """The response cannot go on; ``status`` is what it keeps."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Patience:
    """How long what may still succeed is tried.

    Parameters
    ----------
    seconds
        For one step, from its first try.
    unknown_seconds
        Between tries where the world could not be looked at.
    wait
        Waits so many seconds; True: the program ends meanwhile.
    clock
        Monotonic seconds.
    """

    seconds: float
    wait: Callable[[float], bool]
    unknown_seconds: float = 5.0
    clock: Callable[[], float] = time.monotonic


class StoppedError(Exception):
    """The program ends; the response goes on when it runs again."""


class Execution:
    """One response on its way.

    Parameters
    ----------
    response
        What was decided, and which steps the journal has of it.
    target
        Whom it is about.
    actions
        Its actions by name.
    write
        Writes a row about a step; it is on the disk when it returns.
    patience
        How long is waited.
    dry_run
        Whether steps are only looked at.
    restarts
        Whom to ask before a job is started again; None: nobody.
    """

    def __init__(
        self,
        response: Response,
        target: Target,
        actions: Mapping[str, Action],
        write: Callable[..., object],
        patience: Patience,
        *,
        dry_run: bool = False,
        restarts: Restarts | None = None,
    ) -> None:
        self._restarts = restarts or Restarts()
        self._response = response
        self._target = target
        self._actions = actions
        self._write = write
        self._patience = patience
        self._dry_run = dry_run
        self._done = {(each.action, each.step) for each in response.steps if each.is_done}
        self._begun = {(each.action, each.step): each.before for each in response.steps}

    def run(self) -> tuple[Status, str]:
        """Do what is not done yet; return the status it ends with, and why.

        Raises
        ------
        StoppedError
            If the program ends before; nothing is lost.
        """
        try:
            for name in self._response.actions:
                self._act(name)
        except EndedError as error:
            return error.status, str(error)
        return "done", "All steps are done."

    def _act(self, name: str) -> None:
        steps: Sequence[Step] = self._patiently(
            name, lambda: tuple(self._actions[name].steps(self._target))
        )
        for step in steps:
            if (name, step.name) not in self._done:
                self._step(name, step)

    def _step(self, action: str, step: Step) -> None:
        what = f"{action}: {step.name}"
        found: StepState = self._patiently(what, step.inspect)
        if found.status == "other":
            raise EndedError(self._failed(), f"{what}: {found.text}")
        if found.status == "done":
            # Done by us before a crash: what was there before is known from then.
            before = self._begun.get((action, step.name), found.before)
            self._record(action, step, "done", before, found.text)
            return
        if (action, step.name) not in self._begun:
            self._heed_advice(action)
        if self._dry_run:
            self._record(action, step, "would", found.before, found.text)
            return
        self._record(action, step, "begins", found.before, found.text)
        answer = self._patiently(what, lambda: step.do(found.before))
        self._record(action, step, "done", found.before, answer)

    def _heed_advice(self, action: str) -> None:
        """End the response where its job shall not be started again, wait where it shall later."""
        advice = self._patiently(
            f"{action}: advice", lambda: self._restarts.advice(action, self._target)
        )
        if advice is None:
            return
        if not advice.restarts:
            text = f"{action}: the advice is {advice.verdict} ({advice.reason}): {advice.text}"
            raise EndedError(self._failed(), text)
        waits = advice.verdict == "retry_later" and not self._dry_run
        if waits and self._patience.wait(advice.wait_seconds):
            raise StoppedError

    def _patiently(self, what: str, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - as the call's
        """Return what a call returns, tried again for as long as it may still succeed."""
        end = self._patience.clock() + self._patience.seconds
        while True:
            try:
                return call()
            except (UnknownError, LaterError) as error:
                text = f"{what}: {error}"
                if self._patience.clock() >= end:
                    limit = f"tried for {self._patience.seconds:.0f} s"
                    raise EndedError(self._failed(), f"{text} ({limit})") from error
                seconds = getattr(error, "seconds", self._patience.unknown_seconds)
            except PassedError as error:
                raise EndedError("passed", f"{what}: {error}") from error
            except RejectedError as error:
                raise EndedError(self._failed(), f"{what}: {error}") from error
            except AmbiguousError as error:
                raise EndedError("stuck", f"{what}: {error}") from error
            _LOG.info("waits key=%s detail=%s", self._response.key, text)
            if self._patience.wait(seconds):
                raise StoppedError

    def _failed(self) -> Status:
        # With marks left behind a person must look; without any nothing happened.
        return "stuck" if self._done else "failed"

    def _record(self, action: str, step: Step, phase: Phase, before: Before, text: str) -> None:
        self._write(
            key=self._response.key,
            action=action,
            step=step.name,
            phase=phase,
            before=dict(before),
            text=text,
        )
        if phase == "done":
            self._done.add((action, step.name))


def target_of(response: Response) -> Target:
    """Return whom a response is about, as its actions are told."""
    labels: Mapping[str, str] = response.labels
    # Cut here rather than at the end, where the key stands.
    what = (labels.get("metric") or labels.get("alertname", ""))[:_WHAT_CHARACTERS]
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(response.starts_at))
    reason = f"peerwatch: {what} since {stamp} action={response.key}"
    plain = one_line(reason).encode("ascii", "replace").decode().replace("|", "/")
    return Target(
        key=response.key,
        cluster=response.cluster,
        node=response.node,
        job_id=response.job_id,
        reason=plain[:_REASON_CHARACTERS],
        labels=labels,
        starts_at=response.starts_at,
    )
