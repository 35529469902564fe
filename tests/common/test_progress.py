"""How the progress of long commands shows on a terminal and in a log."""

from __future__ import annotations

import io
import re

import pytest
import tqdm.std

from peerwatch_common.progress import Progress


class Terminal(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(tqdm.std, "time", made)
    return made


def test_on_a_terminal_the_bar_is_redrawn_in_place_and_removed(clock: Clock) -> None:
    out = Terminal()
    with Progress(out, 1000, "step") as progress:
        progress.describe("load", "loss 5.0e-01")
        clock.now += 4
        progress.advance(500)
    shown = out.getvalue()
    assert re.search(
        r"\rload: +50%\|.*\| 500/1000 \[00:04<00:04, 125.00 step/s, loss 5.0e-01\]", shown
    )
    assert "\n" not in shown
    assert shown.endswith("\r")
    assert not shown.rstrip("\r").rpartition("\r")[2].strip()


def test_elsewhere_a_line_is_written_every_few_seconds(clock: Clock) -> None:
    out = io.StringIO()
    with Progress(out, 1000, "step") as progress:
        progress.describe("load", "loss 5.0e-01")
        for _ in range(10):
            clock.now += 2
            progress.advance(100)
    lines = out.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == ["300/1000", "600/1000", "900/1000"]
    assert lines[0] == "load: 300/1000 50.00 step/s, 00:14 left, loss 5.0e-01"
    assert "\r" not in out.getvalue()


def test_work_that_need_not_be_done_does_not_count_in_the_time_left(clock: Clock) -> None:
    out = io.StringIO()
    with Progress(out, 3000, "step") as progress:
        progress.skip(1000)
        clock.now += 10
        progress.advance(100)
    assert out.getvalue() == "100/2000 10.00 step/s, 03:10 left\n"


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_a_whole_line_stands_by_itself(kind: type[io.StringIO]) -> None:
    out = kind()
    with Progress(out, 10) as progress:
        progress.write("case-3: broken")
    assert "case-3: broken\n" in out.getvalue()


def test_a_command_that_is_done_at_once_writes_no_line() -> None:
    out = io.StringIO()
    with Progress(out, 2, "case") as progress:
        progress.advance(2)
    assert out.getvalue() == ""


def test_work_that_becomes_slow_still_shows(clock: Clock) -> None:
    out = io.StringIO()
    with Progress(out, 2000, "step") as progress:
        for count in (1000, 100):
            clock.now += 10
            progress.advance(count)
    assert [line.split()[0] for line in out.getvalue().splitlines()] == ["1000/2000", "1100/2000"]


def test_a_line_of_output_does_not_stand_behind_the_bar(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setattr("sys.stderr", screen)
    with Progress(screen, 10, "case") as progress:
        clock.now += 1
        progress.advance()
        progress.write("{}", screen)
    before = screen.getvalue().partition("{}\n")[0]
    assert not before.rpartition("\r")[2].strip()
    assert "1/10" in before
