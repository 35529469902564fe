"""Rounds of pairs over several nodes: all meet at a store, and the first one keeps the time.

A node that dies or hangs costs its own pair only: every wait ends, every pair runs in processes of
its own, and who has not answered when a round is over has bandwidth 0 there.

Nothing is named by one measurement: a node is named by distinct partners, and a single pair that is
low is measured a second time, of which the better value counts.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from peerwatch_checks.multihost.member import Member
from peerwatch_checks.pairs.naming import Verdict, name_suspects
from peerwatch_checks.pairs.schedule import Pair, Places, near_to_far

# Beyond the time a pair has, for starting it and for hearing of it. Chosen: loading torch takes
# seconds.
SLACK_SECONDS = 5.0
# Of a check's time until its deadline, that of its rounds; the rest, 36 s of 6 minutes, is for
# starting.
SHARE_OF_DEADLINE = 0.9
# Chosen: a round trip to the store, also where no time is left for it.
_LEAST_SECONDS = 0.2
_SINGLE = ("link", "undecided")
# Names of a single pair.
_TWO = 2


class Store(Protocol):
    """What is used of torch's ``TCPStore``."""

    def set(self, key: str, value: str) -> None:
        """Set a value."""

    def get(self, key: str) -> bytes:
        """Return a value that is there."""

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        """Wait until all are there; ``RuntimeError`` if they are not in time."""


@dataclass(frozen=True, slots=True)
class PairTask:
    """One pair's test, as one of its two nodes sees it.

    Parameters
    ----------
    name
        Of the pair's test, unlike that of any other.
    first
        Whether this node's ranks are the first, and so listen.
    host
        Address of the node that listens.
    seconds
        Until then it has an answer.
    """

    name: str
    first: bool
    host: str
    seconds: float


# Measures a pair from this node's side: a value of which more is better, such as GB/s, 0 if it
# failed, and why.
Measure = Callable[[PairTask], tuple[float, str]]


@dataclass(frozen=True, slots=True)
class Limits:
    """How long things may take, and what is low.

    Parameters
    ----------
    join_seconds
        Until then a node has come, or it is missing.
    pair_seconds
        What a pair's test may take; less where all rounds would not end by ``deadline``.
    partners
        How many distinct partners each node meets.
    tolerance, floor
        As for ``name_suspects``; GB/s.
    deadline
        A time of ``time.monotonic()``: by then all rounds have ended, also where each pair of a
        node that died waits for it as long as it may.
    """

    join_seconds: float
    pair_seconds: float
    partners: int
    tolerance: float
    floor: float | None
    deadline: float = math.inf


@dataclass(frozen=True, slots=True)
class Result:
    """What came of all rounds; the same on every node.

    Parameters
    ----------
    names
        Of the nodes that came, by index.
    missing
        Indices of those that did not.
    bandwidth
        Of each pair, as ``Measure`` gives it; 0 where its test failed.
    failures
        Why it did.
    rounds
        How many there were.
    named
        Whom the pairs name.
    """

    names: Mapping[int, str]
    missing: tuple[int, ...]
    bandwidth: Mapping[Pair, float]
    failures: Mapping[Pair, str]
    rounds: int
    named: Verdict


class Rounds:
    """One node's part in the test.

    Parameters
    ----------
    store
        Where all meet.
    member
        Which node this is.
    name, address
        Its name, and where the others reach it.
    measure
        Measures a pair.
    limits
        Times and tolerances; those of the first node count.
    """

    def __init__(
        self,
        store: Store,
        member: Member,
        name: str,
        address: str,
        measure: Measure,
        limits: Limits,
    ) -> None:
        self._store = store
        self._member = member
        self._name = name
        self._address = address
        self._measure = measure
        self._limits = limits

    def run(self, places: Places | None = None) -> Result:
        """Take part in all rounds and return what came of them.

        Parameters
        ----------
        places
            Of each node its leaf and pod; those of the first node count.

        Raises
        ------
        RuntimeError
            If the first node went away, or nobody else came in time.
        """
        self._publish(f"node/{self._member.index}", {"name": self._name, "address": self._address})
        if self._member.index == 0:
            self._plan(places or {})
        plan = self._receive("plan", self._limits.join_seconds + SLACK_SECONDS)
        rounds = plan["rounds"]
        self._play_all(rounds, 0, plan)
        if self._member.index == 0:
            self._publish("again", _once_more(self._result(plan, rounds).named))
        again = self._receive("again", SLACK_SECONDS)
        self._play_all(again, len(rounds), plan)
        result = self._result(plan, [*rounds, *again])
        self._leave(result)
        return result

    def _play_all(
        self, rounds: Sequence[Sequence[Sequence[str]]], first: int, plan: Mapping[str, Any]
    ) -> None:
        for turn, pairs in enumerate(rounds, first):
            # A pair has its time from the beginning of the round, on whichever node.
            until = time.monotonic() + plan["pair_seconds"] + SLACK_SECONDS
            self._play(turn, pairs, plan)
            if self._member.index == 0:
                self._gather(turn, pairs, until)
            self._receive(f"answers/{turn}", until + 2 * SLACK_SECONDS - time.monotonic())

    def _leave(self, result: Result) -> None:
        """Let the first node, which may keep the store, stay until the others have heard all."""
        self._publish(f"left/{self._member.index}", True)
        if self._member.index:
            return
        deadline = time.monotonic() + SLACK_SECONDS
        for index in result.names:
            with contextlib.suppress(RuntimeError):
                self._receive(f"left/{index}", deadline - time.monotonic())

    def _plan(self, places: Places) -> None:
        deadline = time.monotonic() + self._limits.join_seconds
        nodes: dict[int, dict[str, str]] = {}
        for index in range(self._member.count):
            with contextlib.suppress(RuntimeError):
                nodes[index] = self._receive(f"node/{index}", deadline - time.monotonic())
        names = unlike({index: node["name"] for index, node in nodes.items()})
        rounds = near_to_far(list(names.values()), places, self._limits.partners)
        # One more is for what is measured again.
        left = self._limits.deadline - time.monotonic() - 2 * SLACK_SECONDS
        share = left / (len(rounds) + 1) - SLACK_SECONDS
        self._publish(
            "plan",
            {
                "rounds": rounds,
                "pair_seconds": min(self._limits.pair_seconds, max(share, _LEAST_SECONDS)),
                "names": names,
                "addresses": {names[index]: node["address"] for index, node in nodes.items()},
                "missing": [each for each in range(self._member.count) if each not in nodes],
                "places": places,
                "floor": self._limits.floor,
                "tolerance": self._limits.tolerance,
            },
        )

    def _play(self, turn: int, pairs: Sequence[Sequence[str]], plan: Mapping[str, Any]) -> None:
        name = plan["names"].get(str(self._member.index))
        for a, b in pairs:
            if name in (a, b):
                task = PairTask(
                    name=f"{turn}/{a}/{b}",
                    first=name == a,
                    host=plan["addresses"][a],
                    seconds=plan["pair_seconds"],
                )
                bandwidth, failure = self._measure(task)
                self._publish(f"pair/{turn}/{name}", [bandwidth, failure])

    def _gather(self, turn: int, pairs: Sequence[Sequence[str]], deadline: float) -> None:
        """Wait for the answers of a round; who has none has no bandwidth."""
        answers: dict[str, Any] = {}
        for node in (node for pair in pairs for node in pair):
            try:
                answers[node] = self._receive(f"pair/{turn}/{node}", deadline - time.monotonic())
            except RuntimeError:
                answers[node] = [0.0, f"{node} did not answer"]
        self._publish(f"answers/{turn}", answers)

    def _result(self, plan: Mapping[str, Any], rounds: Sequence[Sequence[Sequence[str]]]) -> Result:
        bandwidth: dict[Pair, float] = {}
        failures: dict[Pair, str] = {}
        for turn, pairs in enumerate(rounds):
            answers = self._receive(f"answers/{turn}", SLACK_SECONDS)
            for a, b in pairs:
                value = min(answers[a][0], answers[b][0])
                # Of a pair that was measured twice the better one counts, as for any test here.
                if value >= bandwidth.get((a, b), 0.0):
                    bandwidth[a, b] = value
                    failures[a, b] = answers[a][1] or answers[b][1]
        return Result(
            names={int(index): name for index, name in plan["names"].items()},
            missing=tuple(plan["missing"]),
            bandwidth=bandwidth,
            failures={pair: text for pair, text in failures.items() if text},
            rounds=len(rounds),
            named=name_suspects(
                bandwidth, plan["places"], floor=plan["floor"], tolerance=plan["tolerance"]
            ),
        )

    def _publish(self, key: str, value: object) -> None:
        publish(self._store, key, value)

    def _receive(self, key: str, seconds: float) -> Any:  # noqa: ANN401 - JSON
        return receive(self._store, key, seconds)


def publish(store: Store, key: str, value: object) -> None:
    """Say something to all nodes, as JSON."""
    store.set(key, json.dumps(value))


def receive(store: Store, key: str, seconds: float) -> Any:  # noqa: ANN401 - JSON
    """Return what a node said; waits for it.

    Raises
    ------
    RuntimeError
        If nobody has said it in time.
    """
    # Also what is there already takes the store a moment.
    store.wait([key], timedelta(seconds=max(seconds, _LEAST_SECONDS)))
    return json.loads(store.get(key))


def _once_more(named: Verdict) -> list[list[Pair]]:
    """Return rounds of the single pairs that are low, each node once in a round."""
    rounds: list[list[Pair]] = []
    for suspect in named.suspects:
        if suspect.kind not in _SINGLE or len(suspect.names) != _TWO:
            continue
        a, b = suspect.names
        for pairs in rounds:
            if not any({a, b} & set(pair) for pair in pairs):
                pairs.append((a, b))
                break
        else:
            rounds.append([(a, b)])
    return rounds


def unlike(names: Mapping[int, str]) -> dict[int, str]:
    """Return names that differ: nodes of one name get their index too."""
    count = Counter(names.values())
    return {i: name if count[name] == 1 else f"{name}#{i}" for i, name in names.items()}
