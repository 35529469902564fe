"""How a demo that breaks or is ended says so, and its exit code."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import NoReturn

import pytest

from peerwatch_demo.stack.console import Console
from peerwatch_demo.stack.process import StackError
from peerwatch_demo.stack.signals import Terminated, exit_code


def raises(error: BaseException) -> Callable[[], NoReturn]:
    def work() -> NoReturn:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (StackError("Prometheus ended"), 1, "FAILED: Prometheus ended"),
        (KeyboardInterrupt(), 130, "ended by Ctrl-C"),
        (Terminated("SIGTERM"), 143, "ended by SIGTERM"),
    ],
)
def test_how_a_demo_ended_is_said(error: BaseException, code: int, words: str) -> None:
    terminal = io.StringIO()

    assert code == exit_code(raises(error), Console(terminal, {}))
    assert words in terminal.getvalue()


def test_work_that_ends_by_itself_gives_its_own_code() -> None:
    terminal = io.StringIO()

    assert 3 == exit_code(lambda: 3, Console(terminal, {}))
    assert not terminal.getvalue()


def test_a_mistake_in_the_program_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        exit_code(raises(ZeroDivisionError()), Console(io.StringIO(), {}))
