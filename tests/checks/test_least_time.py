"""The time of work that others interrupt."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from peerwatch_checks.least_time import LeastTime, least_seconds, undisturbed

if TYPE_CHECKING:
    from pathlib import Path

# Parts of a pass, of which others lengthen one each time.
PASSES = [[9.0, 1.0, 1.0], [1.0, 7.0, 1.0], [1.0, 1.0, 8.0]]


def test_what_interrupts_a_part_now_and_then_does_not_count() -> None:
    found = LeastTime()
    for parts in PASSES:
        found.add(parts)

    assert found.seconds == 3.0


def test_what_is_slow_in_every_pass_counts() -> None:
    assert least_seconds(lambda: [2.0, 2.0], within=600.0) == 4.0


def test_before_the_first_pass_nothing_is_known() -> None:
    found = LeastTime(passes=0)

    assert found.seconds == float("inf")
    assert 1.0 / found.seconds == 0.0


def test_it_is_stable_when_passes_bring_no_news() -> None:
    found = LeastTime(passes=2)
    stable = []
    # 0.995 is within a hundredth of what is known.
    for seconds in (2.0, 1.0, 0.995, 0.994):
        found.add([seconds])
        stable.append(found.is_stable)

    assert stable == [False, False, False, True]


def test_many_small_gains_are_news() -> None:
    found = LeastTime(passes=3)
    for number in range(20):
        found.add([1.0 - 0.006 * number])

    assert not found.is_stable


def test_what_is_not_as_expected_is_measured_until_it_is() -> None:
    times = iter([2.0] * 50 + [1.0] * 50)
    asked: list[float] = []

    def enough(seconds: float) -> bool:
        asked.append(seconds)
        return seconds < 1.5

    assert least_seconds(lambda: [next(times)], within=600.0, enough=enough) == 1.0
    assert asked.count(2.0) > 10


@pytest.mark.parametrize("within", [0.0, -1.0])
def test_one_pass_is_always_measured_and_time_is_kept(within: float) -> None:
    passes: list[int] = []

    def one_pass() -> list[float]:
        passes.append(1)
        return [3.0]

    assert least_seconds(one_pass, within=within, enough=lambda _seconds: False) == 3.0
    assert passes == [1]


@pytest.mark.parametrize(("text", "waited"), [("5 2000000000000 7\n", 2000.0), ("5\n", 0.0)])
def test_waiting_for_a_cpu_is_no_time_of_the_work(text: str, waited: float, tmp_path: Path) -> None:
    (tmp_path / "schedstat").write_text(text)
    before = time.perf_counter()

    found = undisturbed(tmp_path / "schedstat")

    assert before - waited <= found <= time.perf_counter() - waited


def test_a_wait_while_both_clocks_are_read_counts_for_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread waits once between its two clocks, for 5000 s, and not again."""
    said = iter(["1 0 1", "1 5000000000000 2", "1 5000000000000 2", "1 5000000000000 2"])
    clock = iter([5001.0, 5002.0])
    monkeypatch.setattr("pathlib.Path.read_text", lambda _path: next(said))
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))

    assert undisturbed(tmp_path) == 2.0


def test_a_kernel_that_does_not_count_waiting_costs_nothing(tmp_path: Path) -> None:
    before = time.perf_counter()

    assert before <= undisturbed(tmp_path / "none") <= time.perf_counter()
