"""Runs checks one after the other: whether each may run, then in its process, again if it fails."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from peerwatch_checks.check import Outcome
from peerwatch_checks.run.attempts import by_device, once, records, repeated
from peerwatch_checks.run.hardware import comparable
from peerwatch_checks.run.supervisor import GRACE_SECONDS, supervised
from peerwatch_common.check_results.record import OF_SEVERAL_NODES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from peerwatch_checks.check import Check, Options, Usual
    from peerwatch_checks.run.attempts import Circumstances
    from peerwatch_checks.run.needs import Node
    from peerwatch_common.check_results.record import Record

# Chosen: a node that was idle this long ago still is; looking takes half a second (busy.py).
_BUSY_SECONDS = 10.0


class Observer(Protocol):
    """Sees how far a run is."""

    def begins(self, check: Check, number: int, count: int) -> None:
        """Take note that a check begins, the ``number``-th of ``count``."""

    def runs(self, check: Check, seconds: float) -> None:
        """Take note that it has been running for some time."""

    def ended(self, check: Check, found: Sequence[Record]) -> None:
        """Take note that it ended, or did not begin."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under which conditions checks run.

    Parameters
    ----------
    about
        What stands in every record.
    node
        What decides whether a check can run.
    options
        The settings of each check, by its name.
    missing, busy
        Return why a check cannot run here, and what the node is in use by.
    rootfs, work
        The node's root, and where checks may write.
    earlier, peers
        Return the records of a check's earlier runs, and those of other nodes.
    usual
        Returns what is usual on other nodes, by device.
    seconds
        How long the run may take.
    stopped
        Returns why the run ends now; empty: it does not.
    grace_seconds
        From SIGTERM to SIGKILL.
    """

    about: Circumstances
    node: Node
    options: Mapping[str, Options]
    missing: Callable[[Check, Node], str]
    busy: Callable[[], str]
    seconds: float
    rootfs: Path = Path("/")
    work: Path | None = None
    earlier: Callable[[str], Sequence[Record]] = lambda _check: ()
    peers: Callable[[str], Sequence[Record]] = lambda _check: ()
    usual: Callable[[str], Mapping[str, Usual]] = lambda _check: {}
    stopped: Callable[[], str] = lambda: ""
    grace_seconds: float = GRACE_SECONDS


@dataclass(slots=True)
class Runner:
    """One run of checks.

    Parameters
    ----------
    conditions
        Under which they run.
    observer
        Sees how far it is.
    """

    conditions: Conditions
    observer: Observer
    _begun: float = field(default_factory=time.monotonic)
    _busy: tuple[float, str] | None = None

    def run(self, checks: Sequence[Check]) -> None:
        """Run checks; the observer gets the records of all, also of those that do not run."""
        for number, check in enumerate(checks, 1):
            self.observer.begins(check, number, len(checks))
            reason = self._reason_against(check)
            found = self._not_run(check, reason) if reason else self._tested(check)
            self.observer.ended(check, found)

    def _reason_against(self, check: Check) -> str:
        """Return why a check does not run, a sentence; empty: it runs."""
        if reason := self.conditions.stopped():
            return f"The run was ended before: {reason}."
        if self._left() <= 0:
            return f"No time was left of the {self.conditions.seconds:g} s of this run."
        if reason := self.conditions.missing(check, self.conditions.node):
            return reason
        return self._in_use() if check.active else ""

    def _in_use(self) -> str:
        now = time.monotonic()
        if self._busy is None or now - self._busy[0] > _BUSY_SECONDS:
            self._busy = (now, self.conditions.busy())
        return self._busy[1]

    def _left(self) -> float:
        return self.conditions.seconds - (time.monotonic() - self._begun)

    def _not_run(self, check: Check, reason: str) -> tuple[Record, ...]:
        outcomes = {"": Outcome("skipped", reason)}
        about = self.conditions.about
        return records(check, outcomes, about, started=time.time(), seconds=0.0, attempts=0)

    def _tested(self, check: Check) -> tuple[Record, ...]:
        started, begun = time.time(), time.monotonic()
        outcomes = self._attempt(check, 0)
        attempts = 1
        failed = any(outcome.status == "fail" for outcome in outcomes.values())
        # Those of several nodes repeat for themselves what failed: the other nodes have ended, and
        # alone this one would find nobody.
        if failed and check.scope not in OF_SEVERAL_NODES:
            took = time.monotonic() - begun
            if reason := self.conditions.stopped() or self._too_late(took):
                outcomes = once(outcomes, reason)
            else:
                outcomes = repeated(outcomes, self._attempt(check, 1))
                attempts = 2
        seconds = time.monotonic() - begun
        about = self.conditions.about
        return records(check, outcomes, about, started=started, seconds=seconds, attempts=attempts)

    def _too_late(self, took: float) -> str:
        if self._left() > took:
            return ""
        return f"no time was left of the {self.conditions.seconds:g} s of this run"

    def _attempt(self, check: Check, attempt: int) -> dict[str, Outcome]:
        conditions = self.conditions
        return by_device(
            supervised(
                self._job(check, attempt),
                max(0.1, min(check.timeout_seconds, self._left())),
                work=conditions.work,
                grace_seconds=conditions.grace_seconds,
                stopped=conditions.stopped,
                watching=lambda seconds: self.observer.runs(check, seconds),
            )
        )

    def _job(self, check: Check, attempt: int) -> dict[str, Any]:
        conditions = self.conditions
        return {
            "check": check.name,
            "path": str(check.path),
            "active": check.active,
            "options": conditions.options[check.name].model_dump(mode="json"),
            "node": conditions.about.node,
            "attempt": attempt,
            "gpus": conditions.node.gpus,
            "earlier": comparable(conditions.earlier(check.name), conditions.about.hardware),
            "peers": comparable(conditions.peers(check.name), conditions.about.hardware),
            "usual": {name: asdict(each) for name, each in conditions.usual(check.name).items()},
            "procfs": str(conditions.node.procfs),
            "sysfs": str(conditions.node.sysfs),
            "rootfs": str(conditions.rootfs),
        }
