"""A place for one driver process: for all GPUs, or for one that is set apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from peerwatch_exporter.driver.progress_marker import LIBRARY, Activity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_common.metrics.spec import Family
    from peerwatch_exporter.driver.child import ChildProcess
    from peerwatch_exporter.driver.limits import Limits

_NOTHING_YET = Activity(0, None, 0)


@dataclass(frozen=True, slots=True)
class CollectorAnswer:
    """What one child said for one collector; ``at`` is when it came (monotonic seconds)."""

    families: list[Family]
    success: bool
    error: str | None
    detail: str
    began: float
    took: float
    at: float


@dataclass(slots=True)
class ChildSlot:
    """One child at a time, and what is remembered of it and of those before.

    Parameters
    ----------
    gpu
        Index of the one GPU that its child may touch; None for all that are not set apart.

    Attributes
    ----------
    asked
        Collectors that its child was asked for and has not answered, and since when.
    answers
        The newest answer by collector, also of a child that is gone.
    start_at
        Not to be started before (monotonic seconds).
    healthy_since
        Since when it answers; None before its child's first answer.
    absent
        Why there is no driver, where there is none; a child that finds one clears it.
    absent_error
        The same in a word, where that is a failure on a node that should have GPUs; None where the
        driver was released on purpose.
    ended_by
        Why its last child was ended; None once another one answers.
    """

    gpu: int | None
    child: ChildProcess | None = None
    asked: dict[str, float] = field(default_factory=dict)
    answers: dict[str, CollectorAnswer] = field(default_factory=dict)
    start_at: float = 0.0
    healthy_since: float | None = None
    absent: str | None = None
    absent_error: str | None = None
    ended_by: str | None = None
    pause: float = 0.0
    _activity: Activity = _NOTHING_YET
    _progress_at: float = 0.0

    @property
    def name(self) -> str:
        """The GPU's index, or ``all``, as log lines have it."""
        return "all" if self.gpu is None else str(self.gpu)

    def started(self, child: ChildProcess, now: float) -> None:
        """Take a new child."""
        self.child = child
        self.healthy_since = None
        self._activity = _NOTHING_YET
        self._progress_at = now
        self.asked.clear()

    def ask(self, collector: str, now: float) -> None:
        """Ask the child, unless there is none or it was asked already."""
        if self.child is not None and collector not in self.asked:
            self.child.send("run", collector)
            self.asked[collector] = now

    def answered(self, collector: str, answer: CollectorAnswer) -> None:
        """Take an answer."""
        self.asked.pop(collector, None)
        self.answers[collector] = answer
        self.ended_by = None
        if self.healthy_since is None:
            self.healthy_since = answer.at

    def wait(self, now: float, limits: Limits) -> None:
        """Put the next start off, each time for longer."""
        self.pause = min(max(2 * self.pause, limits.first_pause), limits.longest_pause)
        self.start_at = now + self.pause

    def is_overdue(self, collector: str, now: float, deadline_seconds: float) -> bool:
        """Return whether its child should have answered by now."""
        since = self.asked.get(collector)
        return since is not None and now - since >= deadline_seconds

    def hangs(self, now: float, deadline_seconds: float, limits: Limits) -> Activity | None:
        """Return what the child was doing when it stopped doing anything, or None."""
        if self.child is None:
            return None
        activity = self.child.activity()
        if activity != self._activity:
            self._activity = activity
            self._progress_at = now
        still = now - self._progress_at
        if activity.phase == LIBRARY:
            return activity if still > limits.library else None
        if not self.asked:
            return None
        overdue = now - min(self.asked.values()) - deadline_seconds
        if overdue > limits.run or (overdue > limits.hang and still > limits.hang):
            return activity
        return None

    def restart_deadlines(self, now: float) -> None:
        """Start every wait anew, after a time in which this process itself stood still."""
        self._progress_at = now
        self.asked = dict.fromkeys(self.asked, now)

    def forget(self) -> Mapping[str, float]:
        """Let go of the child's state; return what it left unanswered."""
        unanswered, self.asked = self.asked, {}
        self.child = None
        self.healthy_since = None
        return unanswered


def decoded(child: ChildProcess, message: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a child's message, an answer with its families."""
    if message[0] != "answer":
        return message
    _, name, success, error, detail, began, took, packed = message
    families = child.unpacker.unpack(name, packed)
    return (
        "answer",
        name,
        CollectorAnswer(families, success, error, detail, began, took, began + took),
    )
