"""A job as Slurm has it, found by the id that an alert names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peerwatch_responder.action import UnknownError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from peerwatch_responder.actions.slurm.command import Commands

# As processes of it have it in SLURM_JOB_ID, or as people write it: 4711, 4711_3, 4711+1.
_ID = re.compile(r"(?P<id>[1-9][0-9]{0,9})(?:_(?P<task>[0-9]{1,9})|\+(?P<part>[0-9]{1,4}))?")
# It holds its nodes.
_RUNS = {"RUNNING", "SUSPENDED", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
# It is on its way from one state to another.
_CHANGES = {"COMPLETING", "REQUEUED", "REQUEUE_FED", "SPECIAL_EXIT"}


@dataclass(frozen=True, slots=True)
class Job:
    """One job; all parts of a heterogeneous one are one.

    Parameters
    ----------
    id
        What ``scontrol`` calls it: the task of an array, the leader of a heterogeneous job.
    states
        Those of its parts, in capitals.
    nodes
        Where it runs; empty: it does not.
    excluded
        Its list of excluded nodes, as it stands there.
    began
        When its newest run began, in Unix seconds; in the future where it waits for a time.
    can_requeue
        Whether Slurm would requeue it.
    waits_until
        When it may begin, in Unix seconds.
    """

    id: str
    states: frozenset[str]
    nodes: frozenset[str]
    excluded: str
    began: float
    can_requeue: bool
    waits_until: float

    @property
    def runs(self) -> bool:
        """Whether it holds nodes."""
        return not self.states.isdisjoint(_RUNS)

    @property
    def changes(self) -> bool:
        """Whether it is between two states."""
        return not self.states.isdisjoint(_CHANGES)

    @property
    def waits(self) -> bool:
        """Whether it waits to be started."""
        return self.states == {"PENDING"}

    @property
    def shown(self) -> str:
        """Its id and state for a person."""
        return f"job {self.id} is {'+'.join(sorted(self.states))}"


def job_of(commands: Commands, job_id: str) -> Job | None:
    """Return the job that an alert names; None: Slurm knows none.

    Raises
    ------
    UnknownError
        If Slurm does not say all of it.
    """
    wanted = _ID.fullmatch(job_id)
    if wanted is None:
        return None
    rows = [
        each
        for each in commands.ask_json("squeue", "jobs", "--all", "--states=all")
        if _is(each, wanted)
    ]
    if not rows:
        return None
    leader = min(rows, key=lambda each: _number(each, "het_job_offset"))
    return Job(
        id=_id_of(leader),
        states=frozenset(state for each in rows for state in _states(each)),
        nodes=frozenset(expanded(commands, (_text(each, "nodes") for each in rows))),
        excluded=_text(leader, "excluded_nodes"),
        began=_number(leader, "start_time"),
        can_requeue=bool(leader.get("requeue")) and bool(leader.get("batch_flag")),
        waits_until=_number(leader, "eligible_time"),
    )


def expanded(commands: Commands, lists: Iterable[str]) -> list[str]:
    """Return the nodes of Slurm's lists, such as ``n[1-3],n7``.

    Raises
    ------
    UnknownError
        If Slurm cannot read them.
    """
    text = ",".join(filter(None, lists))
    return commands.ask("scontrol", "show", "hostnames", text).split() if text else []


def _is(row: Mapping[str, Any], wanted: re.Match[str]) -> bool:
    number = int(wanted["id"])
    array, leader = _number(row, "array_job_id"), _number(row, "het_job_id")
    # Tasks that have not begun are one row with the id of the whole array.
    has_task = _value(row, "array_task_id") is not None
    if wanted["task"] is not None:
        task = _number(row, "array_task_id")
        return array == number and has_task and task == int(wanted["task"])
    is_rest_of_array = bool(array) and not has_task
    return number in {_number(row, "job_id"), leader} and not is_rest_of_array


def _id_of(row: Mapping[str, Any]) -> str:
    # The number of an array's last task is that of the whole array: named by it, all would be.
    array = _number(row, "array_job_id")
    if array:
        return f"{array:.0f}_{_number(row, 'array_task_id'):.0f}"
    return f"{_number(row, 'het_job_id') or _number(row, 'job_id'):.0f}"


def _states(row: Mapping[str, Any]) -> list[str]:
    state = row.get("job_state")
    states = [state] if isinstance(state, str) else state
    if not isinstance(states, list) or not all(isinstance(each, str) for each in states):
        raise UnknownError(f"squeue prints a job without a state: {row.get('job_id')}")
    return [each.upper() for each in states]


def _value(row: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - whatever squeue prints
    """Return what a row has under a name; None: nothing. Newer versions say whether it is set."""
    value = row.get(name)
    if isinstance(value, dict):
        return value.get("number") if value.get("set") else None
    return value


def _number(row: Mapping[str, Any], name: str) -> float:
    value = _value(row, name)
    if value is None:
        return 0
    if not isinstance(value, int | float):
        raise UnknownError(f"squeue prints a job whose {name} is no number: {row.get('job_id')}")
    return value


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise UnknownError(f"squeue prints a job without {name}: {row.get('job_id')}")
    return value
