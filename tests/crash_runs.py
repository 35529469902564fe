"""One effect per fault, whatever dies when: the responder over a world that notes each request.

    PYTHONPATH=tests:exporter:detector python -m crash_runs --runs 20000
    PYTHONPATH=tests:exporter:detector python -m crash_runs --runs 200 --kill

A run is one fault that two alerts name, posted by two Alertmanagers six times each in each life of
the program, and as many lives as it takes: at each row of the journal and each request, before it
and after it, the program may die. With ``--kill`` each life is a process, which dies by SIGKILL.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from peerwatch_responder.action import StepState
from peerwatch_responder.actions.driver.cluster import DriverOnly
from peerwatch_responder.audit.journal import Journal
from peerwatch_responder.audit.replay import state_of
from peerwatch_responder.run import servers
from peerwatch_responder.run.books import Books
from peerwatch_responder.run.responder import Responder
from peerwatch_responder.settings.config import ResponderConfig, ServerConfig
from peerwatch_responder.settings.load import Settings
from peerwatch_responder.settings.policy import PolicyConfig, RuleConfig
from response_cases import NOW, alert

if TYPE_CHECKING:
    from collections.abc import Callable

PODS = ("a", "b", "c")
# Each of them once.
EFFECTS = ["cordon n1", "evict a", "evict b", "evict c", "tell driver"]
FAULT = (alert("n1", "j1"), alert("n1", "j1", name="PeerwatchXidHardware"))
CHANCE, DELIVERIES, LIVES = 0.15, 12, 200
_RULE = RuleConfig(name="r", match={"severity": "critical"}, do=("cordon", "evict", "tell"))


class Killed(BaseException):
    """The program dies here."""


class World(DriverOnly):
    """What was requested, in a file, so that it outlives the program; and a cluster."""

    def __init__(self, path: Path, dies: Callable[[], None]) -> None:
        super().__init__()
        self._path, self._dies = path, dies

    @property
    def requests(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []

    def request(self, what: str) -> None:
        self._dies()
        with self._path.open("a") as file:
            file.write(f"{what}\n")
        self._dies()

    def owners(self, places):
        out = "cordon n1" in self.requests
        return {place: "ours" if out and place[1] == "n1" else "nobody" for place in places}


class Request:
    """A step that looks whether it was requested before."""

    def __init__(self, world: World, name: str, *, is_unobservable: bool = False) -> None:
        self.world, self.name, self.is_unobservable = world, name, is_unobservable

    def inspect(self) -> StepState:
        done = self.name in self.world.requests and not self.is_unobservable
        return StepState("done" if done else "open", self.name, {"mark": None})

    def do(self, _before) -> str:
        # A driver keeps the identities of orders, as the protocol asks of it.
        if not (self.is_unobservable and self.name in self.world.requests):
            self.world.request(self.name)
        return "200"


class Action:
    def __init__(self, world: World, *names: str, is_unobservable: bool = False) -> None:
        self._steps = [Request(world, name, is_unobservable=is_unobservable) for name in names]

    def steps(self, _target):
        return self._steps

    def undo(self, _target, step, _before):
        return step


class DyingJournal(Journal):
    """Dies before or after a row."""

    dies: Callable[[], None]

    def append(self, kind, **data):
        self.dies()
        row = super().append(kind, **data)
        self.dies()
        return row


class OneThread(Responder):
    """Responses run where they are decided, so that what dies is all of it."""

    def _start(self, name, run):
        run()


def life(folder: Path, dies: Callable[[], None]) -> None:
    """Let the program live until it dies, or has heard all deliveries."""
    world = World(folder / "world", dies)
    actions = {
        "cordon": Action(world, "cordon n1"),
        "evict": Action(world, *(f"evict {pod}" for pod in PODS)),
        "tell": Action(world, "tell driver", is_unobservable=True),
    }
    config = ResponderConfig(
        dry_run=False,
        alertmanager=ServerConfig(url="http://alertmanager"),
        policy=PolicyConfig(rules=(_RULE,)),
    )
    settings = Settings(config, world, actions, frozenset({"cordon"}))
    with DyingJournal(folder / "journal.jsonl", lambda: NOW) as journal:
        journal.dies = dies
        ours = OneThread(settings, Books(journal, journal.rows), lambda: NOW)
        ours.go_on()
        for _ in range(DELIVERIES):
            ours.receive(FAULT)
            ours.cycle()


def run(seed: int, folder: Path, *, crash_at: int | None = None, kill: bool = False) -> int:
    """Do one run; return how often the program died.

    Parameters
    ----------
    seed
        Decides when it dies.
    folder
        For the journal and the world.
    crash_at
        Die at this place alone, counted from 0, instead of by chance.
    kill
        Whether each life is a process that dies by SIGKILL.

    Raises
    ------
    AssertionError
        If an effect is missing or came twice.
    """
    places = itertools.count()
    deaths = 0
    for number in range(LIVES):
        chance = random.Random(f"{seed}-{number}")

        def dies(chance=chance) -> None:
            place = next(places)
            if place == crash_at or (crash_at is None and chance.random() < CHANCE):
                if kill:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise Killed

        if kill:
            lived = _in_a_child(folder, dies)
        else:
            try:
                life(folder, dies)
                lived = True
            except Killed:
                lived = False
        if lived:
            break
        deaths += 1
    _check(folder)
    return deaths


def _in_a_child(folder: Path, dies: Callable[[], None]) -> bool:
    child = os.fork()
    if child == 0:
        life(folder, dies)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in {0, -signal.SIGKILL}
    return status == 0


def _check(folder: Path) -> None:
    world = World(folder / "world", lambda: None)
    assert sorted(world.requests) == EFFECTS, (folder, world.requests)
    with Journal(folder / "journal.jsonl") as journal:
        done = state_of(journal.rows).responses.values()
        assert [each.status for each in done] == ["done"], (folder, done)
        assert sum(row.kind == "planned" for row in journal.rows) == 1


def places_of_a_run(folder: Path) -> int:
    """Return at how many places a run without a death could die."""
    places = itertools.count()
    life(folder, lambda: next(places) and None)
    return next(places)


def hear_of_the_fault() -> None:
    """Let Alertmanager say that the fault's alerts fire."""
    servers.firing = lambda _server: frozenset(each.fingerprint for each in FAULT)


def main() -> int:
    """Do runs and say how they went."""
    parser = argparse.ArgumentParser(description="One effect per fault, whatever dies when.")
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--kill", action="store_true", help="processes that die by SIGKILL")
    options = parser.parse_args()
    hear_of_the_fault()
    deaths = 0
    for number in range(options.runs):
        with tempfile.TemporaryDirectory() as folder:
            deaths += run(options.seed + number, Path(folder), kill=options.kill)
        if number % 100 == 99:
            sys.stderr.write(f"{number + 1} of {options.runs} runs, {deaths} deaths\n")
    print(f"{options.runs} runs, {deaths} deaths, one effect each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
