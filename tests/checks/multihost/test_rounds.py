"""Rounds of pairs between nodes that are threads here, by torch's own store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from peerwatch_checks.multihost.member import Member
from peerwatch_checks.multihost.rounds import Limits, PairTask, Result, Rounds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

# Patience with a machine that does much else; nothing waits for it unless something is missing.
LIMITS = Limits(join_seconds=30.0, pair_seconds=30.0, partners=3, tolerance=0.15, floor=None)
Measured = Callable[[int, PairTask], tuple[float, str]]


@pytest.fixture
def port() -> Iterator[int]:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield store.port
    del store


def play(
    port: int,
    count: int,
    measured: Measured,
    *,
    limits: Limits = LIMITS,
    absent: Collection[int] = (),
    names: Callable[[int], str] = lambda index: f"n{index}",
    places: dict[str, dict[str, str]] | None = None,
    results: dict[int, Result | Exception] | None = None,
) -> dict[int, Result | Exception]:
    results = {} if results is None else results

    def node(index: int) -> None:
        store = PrefixStore("t", TCPStore("127.0.0.1", port, wait_for_workers=False))
        member = Member(index, count, leads=True, host="127.0.0.1", port=port)
        rounds = Rounds(
            store, member, names(index), "127.0.0.1", lambda task: measured(index, task), limits
        )
        try:
            results[index] = rounds.run(places)
        except RuntimeError as error:
            results[index] = error

    threads = [
        threading.Thread(target=node, args=(index,))
        for index in range(count)
        if index not in absent
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def capped(slow: Collection[str]) -> Measured:
    def measured(_index: int, task: PairTask) -> tuple[float, str]:
        _, a, b = task.name.split("/")
        return (5.0 if {a, b} & set(slow) else 10.0), ""

    return measured


def named(result: Result | Exception) -> list[tuple[str, tuple[str, ...]]]:
    assert isinstance(result, Result), result
    return [(each.kind, each.names) for each in result.named.suspects]


def test_every_node_hears_the_same_verdict(port: int) -> None:
    results = play(port, 8, capped({"n5"}))
    assert set(results) == set(range(8))
    for result in results.values():
        assert named(result) == [("node", ("n5",))]
        assert isinstance(result, Result)
        assert (result.rounds, len(result.bandwidth), result.missing) == (3, 12, ())


def test_odd_numbers_and_all_well(port: int) -> None:
    results = play(port, 5, capped(()))
    assert [[]] * 5 == [named(result) for result in results.values()]


def test_who_does_not_come_is_missing_and_the_others_go_on(port: int) -> None:
    # Waited for in full; on a busy machine the store takes seconds for an answer.
    results = play(port, 5, capped(()), limits=replace(LIMITS, join_seconds=8.0), absent={2})
    for result in results.values():
        assert isinstance(result, Result)
        assert result.missing == (2,)
        assert named(result) == []


@pytest.mark.slow
def test_who_falls_silent_loses_its_own_pairs_only(port: int) -> None:
    results: dict[int, Result | Exception] = {}

    def measured(index: int, task: PairTask) -> tuple[float, str]:
        deadline = time.monotonic() + 60.0
        while index == 3 and len(results) < 5 and time.monotonic() < deadline:
            time.sleep(0.05)
        return (0.0, "no answer") if "n3" in task.name else (10.0, "")

    limits = replace(LIMITS, pair_seconds=0.5)
    play(port, 6, measured, limits=limits, results=results)
    for index in (0, 1, 2, 4, 5):
        result = results[index]
        assert named(result) == [("node", ("n3",))]
        assert isinstance(result, Result)
        assert all("n3" in pair for pair in result.failures)


def test_rounds_share_the_time_until_the_deadline(port: int) -> None:
    given: list[float] = []

    def measured(_index: int, task: PairTask) -> tuple[float, str]:
        given.append(task.seconds)
        return 10.0, ""

    # Three rounds, one more for what is measured again, and 10 s to begin and to end.
    play(port, 4, measured, limits=replace(LIMITS, deadline=time.monotonic() + 110.0))
    assert {True} == {0 < seconds <= 20.0 for seconds in given}


def test_nodes_of_one_name_are_told_apart(port: int) -> None:
    def measured(index: int, _task: PairTask) -> tuple[float, str]:
        return (5.0 if index == 1 else 10.0), ""

    results = play(port, 4, measured, names=lambda _index: "localhost")
    assert named(results[0]) == [("node", ("localhost#1",))]


def test_a_single_pair_that_is_low_once_is_no_link(port: int) -> None:
    seen: set[str] = set()

    def measured(_index: int, task: PairTask) -> tuple[float, str]:
        turn, a, b = task.name.split("/")
        if (a, b) != ("n0", "n1"):
            return 10.0, ""
        seen.add(turn)
        # Three rounds, and then the pair again.
        return (10.0 if turn == "3" else 5.0), ""

    results = play(port, 4, measured)
    assert len(seen) == 2
    assert [[]] * 4 == [named(result) for result in results.values()]


def test_a_single_pair_that_is_low_twice_is_a_link(port: int) -> None:
    def measured(_index: int, task: PairTask) -> tuple[float, str]:
        return (5.0 if task.name.endswith("n0/n1") else 10.0), ""

    for result in play(port, 4, measured).values():
        assert named(result) == [("link", ("n0", "n1"))]
        assert isinstance(result, Result)
        assert result.rounds == 4


def test_places_of_the_first_node_tell_an_uplink(port: int) -> None:
    places = {f"n{i}": {"leaf": f"l{i // 4}"} for i in range(8)}

    def measured(_index: int, task: PairTask) -> tuple[float, str]:
        _, a, b = task.name.split("/")
        return (10.0 if places[a] == places[b] else 5.0), ""

    results = play(port, 8, measured, places=places)
    for result in results.values():
        assert named(result) == [("uplink", ("leaf l0", "leaf l1"))]


def test_without_the_first_node_the_others_end(port: int) -> None:
    results = play(port, 3, capped(()), limits=replace(LIMITS, join_seconds=1.0), absent={0})
    assert set(results) == {1, 2}
    assert all(isinstance(result, RuntimeError) for result in results.values())
