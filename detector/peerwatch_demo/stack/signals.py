"""The signals that end a demo, turned into exceptions, so that all is taken down on the way out."""

from __future__ import annotations

import signal
from collections.abc import Callable

from peerwatch_demo.stack.console import Console
from peerwatch_demo.stack.process import StackError


class Terminated(BaseException):
    """A signal asks the demo to end."""


def catch_signals() -> None:
    """Turn the first signal to end into an exception; ignore more while things are taken down."""

    def end(number: int, _frame: object) -> None:
        for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(other, signal.SIG_IGN)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise Terminated(signal.Signals(number).name)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)


def exit_code(work: Callable[[], int], console: Console) -> int:
    """Do the work and return its exit code, or that of how it ended, which the console then says.

    1: a part of the stack broke. 130 and 143: ended by Ctrl-C or by another signal, which
    ``catch_signals`` must have been asked for.
    """
    try:
        return work()
    except StackError as error:
        console.text(f"FAILED: {error}", "bad")
        return 1
    except KeyboardInterrupt:
        console.text("ended by Ctrl-C", "bad")
        return 130
    except Terminated as error:
        console.text(f"ended by {error}", "bad")
        return 143
