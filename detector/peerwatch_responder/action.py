"""The contract of an action: one file, one effect on the world, one registration.

An action is a sequence of steps. Each step is one request that happens wholly or not at all, and
can be looked at: whether it was done, by us or by another, and what was there before. The journal
has a row before and after each, so that after a crash the world is looked at first, and whatever
was done can be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from peerwatch_responder.backends import import_backends

# What JSON can hold: it goes through the journal.
Before = Mapping[str, Any]


class ActionOptions(BaseModel):
    """The settings of one action, below ``actions.<name>`` in the settings file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class UnknownError(Exception):
    """The state of the world could not be learnt: nothing is done, it is tried again."""


class LaterError(Exception):
    """Nothing was done; it can be tried again after ``seconds``."""

    def __init__(self, text: str, seconds: float = 5.0) -> None:
        super().__init__(text)
        self.seconds = seconds


class RejectedError(Exception):
    """Nothing was done, and the same request would be rejected again."""


class PassedError(Exception):
    """The node is as it should be: the response ends, and what it did before is undone."""


class AmbiguousError(Exception):
    """It may or may not have been done, and cannot be looked at: a person is needed."""


@dataclass(frozen=True, slots=True)
class Target:
    """Whom an action is about, and why.

    Parameters
    ----------
    key
        The response; every mark that is left behind carries it.
    cluster, node, job_id
        The node, and the job that it serves; the job may be empty.
    reason
        A sentence for whoever finds the mark: ASCII, at most 200 characters.
    labels
        All labels of the alert.
    starts_at
        Since when the alert fires, in Unix seconds.
    """

    key: str
    cluster: str
    node: str
    job_id: str
    reason: str
    labels: Mapping[str, str] = field(default_factory=dict)
    starts_at: float = 0.0


@dataclass(frozen=True, slots=True)
class StepState:
    """What a step found.

    Parameters
    ----------
    status
        ``open``: it can be done. ``done``: it is, with our mark, or nothing is left to do.
        ``other``: somebody else has done it or something against it; it stays as it is.
    text
        The same as a sentence.
    before
        What must be known to undo it.
    """

    status: Literal["open", "done", "other"]
    text: str = ""
    before: Before = field(default_factory=dict)


class Step(Protocol):
    """One request."""

    @property
    def name(self) -> str:
        """What tells it from other steps of the action, also after a restart."""

    def inspect(self) -> StepState:
        """Find out whether it can be done, or is done.

        Raises
        ------
        UnknownError
            If that fails.
        """

    def do(self, before: Before) -> str:
        """Do it, provided that the world is as it was looked at; return what was answered.

        Raises
        ------
        UnknownError, LaterError, RejectedError, AmbiguousError
            If it was not done, or that is not known.
        PassedError
            If it has found that nothing need be done.
        """


class Action(Protocol):
    """Makes steps for a target."""

    def steps(self, target: Target) -> Iterable[Step]:
        """Return the steps, in their order; those that are done already may be missing.

        Raises
        ------
        UnknownError
            If they could not be found out.
        """

    def undo(self, target: Target, step: str, before: Before) -> str:
        """Put back what was there before a step, where the mark is still ours.

        Parameters
        ----------
        target
            As when it was done.
        step
            Its name.
        before
            What it found when it looked.

        Returns
        -------
        str
            What was done; why nothing is to be undone, where that is so.

        Raises
        ------
        UnknownError, LaterError, RejectedError, AmbiguousError
            If it was not undone, or that is not known.
        """


_MakerT = TypeVar("_MakerT", bound=Callable[..., Action])


@dataclass(frozen=True, slots=True)
class Registered:
    """What is known of an action.

    Parameters
    ----------
    name
        As in ``do`` of a rule.
    summary
        What it does, in a line.
    takes_out
        Whether the node is out of work after it.
    make
        Makes it from its settings, and from the cluster where it needs one.
    options
        The class of its settings.
    cluster
        The kind of cluster that it needs; empty: none.
    restarts
        Whether, with some settings, it starts a job again; advice is asked before.
    """

    name: str
    summary: str
    takes_out: bool
    make: Callable[..., Action]
    options: type[ActionOptions]
    cluster: str = ""
    restarts: Callable[[Any], bool] = lambda _options: False


_REGISTRY: dict[str, Registered] = {}


def register(
    name: str,
    summary: str,
    *,
    takes_out: bool,
    options: type[ActionOptions] = ActionOptions,
    cluster: str = "",
    restarts: Callable[[Any], bool] = lambda _options: False,
) -> Callable[[_MakerT], _MakerT]:
    """Register the class or function below, which makes the action; parameters as above."""

    def add(make: _MakerT) -> _MakerT:
        if name in _REGISTRY:
            raise ValueError(f"Action {name!r} is registered twice.")
        _REGISTRY[name] = Registered(name, summary, takes_out, make, options, cluster, restarts)
        return make

    return add


def registered_actions() -> dict[str, Registered]:
    """Import every action and return them by name."""
    import_backends()
    return dict(sorted(_REGISTRY.items()))
