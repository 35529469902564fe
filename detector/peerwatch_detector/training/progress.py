"""The progress of a training: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

_BAR = 24
# Seconds between two lines where a bar cannot be redrawn.
_PAUSE = 5.0


class TrainingBar:
    """Tells which model trains, how far it is, and how long all of them still take.

    Parameters
    ----------
    out
        Where it goes.
    models
        How many models are to be trained.
    steps
        Steps of each.
    clock
        Seconds, rising.
    """

    def __init__(
        self,
        out: TextIO,
        models: int,
        steps: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.out = out
        self.models = models
        self.steps = steps
        self._clock = clock
        self._name = ""
        self._number = 0
        self._spoke = clock()
        self._last: tuple[float, int] | None = None
        self._spent = 0.0
        self._taken = 0

    def begin(self, name: str) -> None:
        """Go to the next model."""
        self._name, self._number, self._last = name, self._number + 1, None

    def show(self, step: int, loss: float) -> None:
        """Tell how far the model is."""
        now = self._clock()
        if self._last is not None and step > self._last[1]:
            self._spent += now - self._last[0]
            self._taken += step - self._last[1]
        self._last = (now, step)
        of_all = f"{self._number}/{self.models}"
        how = f"{step}/{self.steps} loss {loss:.1e}{self._left(step)}"
        if self.out.isatty():
            done = "#" * (step * _BAR // self.steps)
            self._write(f"\r\x1b[K{self._name:<22} {of_all:>5} [{done:<{_BAR}}] {how}")
        elif now - self._spoke >= _PAUSE:
            self._spoke = now
            self._write(f"{self._name:<22} {of_all:>5} {how}\n")

    def end(self, result: str) -> None:
        """Put the result of the model in the place of its bar."""
        self.tell(f"{self._name:<22} {result}")
        self._spoke = self._clock()

    def tell(self, line: str) -> None:
        """Write a whole line."""
        self._write(f"\r\x1b[K{line}\n" if self.out.isatty() else f"{line}\n")

    def _left(self, step: int) -> str:
        """Return the time that all models together still take at the pace so far."""
        if not self._taken or self._spent <= 0:
            return ""
        steps = (self.models - self._number) * self.steps + self.steps - step
        pace = self._taken / self._spent
        minutes, seconds = divmod(round(steps / pace), 60)
        return f" {pace:.0f} steps/s, {minutes}:{seconds:02d} left"

    def _write(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()
