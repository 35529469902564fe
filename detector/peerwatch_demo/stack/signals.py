"""The signals that end a demo, turned into exceptions, so that all is taken down on the way out."""

from __future__ import annotations

import signal


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
