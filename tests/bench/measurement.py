"""What a benchmark reports: one quantity of ours, beside what a user would do instead."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Goal:
    """The most that is wanted.

    Parameters
    ----------
    most
        In the unit of the measurement, or as a ratio.
    of
        ``value``: of our own; ``ratio``: of ours divided by the peer's.
    """

    most: float
    of: Literal["value", "ratio"] = "value"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One quantity of which less is better, ours and others' in the same unit and the same run.

    Parameters
    ----------
    what
        The program, and what it does. With ``nodes`` the name of a curve.
    unit
        Such as ``s CPU`` or ``MiB``.
    ours
        Measured.
    peer, peer_name
        What a user would do instead; None where there is no such thing.
    floor, floor_name
        What nobody can do without, such as reading the bytes.
    goals
        All that are wanted.
    nodes
        Size of the job, where the quantity depends on it.
    """

    what: str
    unit: str
    ours: float
    peer: float | None = None
    peer_name: str = ""
    floor: float | None = None
    floor_name: str = ""
    goals: tuple[Goal, ...] = ()
    nodes: int | None = None

    @property
    def name(self) -> str:
        """What is measured, with the size; the same in all runs."""
        return self.what if self.nodes is None else f"{self.what}, {self.nodes:,} nodes"

    @property
    def ratio(self) -> float | None:
        """Ours divided by the peer's; None without a peer."""
        return self.ours / self.peer if self.peer else None

    @property
    def over_floor(self) -> float | None:
        """Ours divided by the floor; None without one."""
        return self.ours / self.floor if self.floor else None

    def missed(self) -> tuple[Goal, ...]:
        """Return the goals that are not met; one of a ratio without a peer is not met either."""
        values = {"value": self.ours, "ratio": self.ratio}
        return tuple(
            goal
            for goal in self.goals
            if (value := values[goal.of]) is None or not value <= goal.most
        )


def to_json(measurement: Measurement) -> str:
    """Return a measurement as one line."""
    return json.dumps(asdict(measurement))


def from_json(text: str) -> Measurement:
    """Return the measurement of a line that ``to_json`` wrote.

    Raises
    ------
    ValueError, TypeError, KeyError
        If it is no such line.
    """
    fields = json.loads(text)
    goals = tuple(Goal(**goal) for goal in fields.pop("goals"))
    return Measurement(**fields, goals=goals)


def alone(measure: Callable[[argparse.Namespace], Iterable[Measurement]]) -> None:
    """Run one benchmark as a program: a table for people, ``--json`` for ``python -m bench``."""
    from bench.table import growth_of, table_of

    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="one measurement a line")
    options = parser.parse_args()
    found = []
    for measurement in measure(options):
        found.append(measurement)
        if options.json:
            print(to_json(measurement), flush=True)
    if not options.json:
        print("\n\n".join(filter(None, (table_of(found), growth_of(found)))))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every benchmark has."""
    parser.add_argument("--large", action="store_true", help="sizes up to 12,500 nodes as well")
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="of what runs for a while (%(default)s)"
    )


def cpu_seconds(action: Callable[[], object], repeats: int = 5) -> float:
    """Return the least CPU time of this process, all threads, for an action."""
    return cpu_in_turns((action,), repeats)[0]


def cpu_in_turns(actions: Sequence[Callable[[], object]], repeats: int = 5) -> list[float]:
    """Return the least CPU time of each action; they take turns, so load hits all alike."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(repeats):
        for place, action in enumerate(actions):
            began = time.process_time()
            action()
            times[place].append(time.process_time() - began)
    return [min(each) for each in times]


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds that a command took, its children included, and what it wrote."""

    wall: float
    cpu: float
    output: bytes


def run_command(
    command: Sequence[str],
    statuses: Sequence[int] = (0,),
    environment: dict[str, str] | None = None,
) -> Run:
    """Run a command to its end.

    Raises
    ------
    RuntimeError
        If its exit status is none of those expected.
    """
    began = time.perf_counter()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (out, err):
            file.seek(0)
        output, said = out.read(), err.read()
    if process.returncode not in statuses:
        end = said.decode(errors="replace")[-500:]
        raise RuntimeError(f"{' '.join(command)[:200]}: exit status {process.returncode}: {end}")
    return Run(wall, used.ru_utime + used.ru_stime, output)


def commands_in_turns(
    commands: Sequence[Sequence[str]], repeats: int = 3, statuses: Sequence[int] = (0,)
) -> list[Run]:
    """Return of each command the run with the least CPU time; they take turns."""
    runs: list[list[Run]] = [[] for _ in commands]
    for _ in range(repeats):
        for place, command in enumerate(commands):
            runs[place].append(run_command(command, statuses))
    return [min(each, key=lambda run: run.cpu) for each in runs]
