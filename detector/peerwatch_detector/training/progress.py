"""The progress of a training: which model, how far, its loss, and the time left for all."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TextIO

from peerwatch_common.progress import Progress

# Of the column with the models' names: the longest name of a shipped metric.
_NAME_WIDTH = 22


class TrainingProgress:
    """Counts the steps of all models and names each when it is done.

    Parameters
    ----------
    out
        Where it goes.
    models
        How many models are to be trained.
    steps
        Steps of each.
    """

    def __init__(self, out: TextIO, models: int, steps: int) -> None:
        self.models = models
        self.steps = steps
        self._progress = Progress(out, models * steps, "step")
        self._name = ""
        self._number = 0
        self._step = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.close()

    def begin(self, name: str, done: int = 0) -> None:
        """Go to the next model, of which so many steps were done before."""
        self._name, self._number, self._step = name, self._number + 1, done
        self._progress.skip(done)

    def show(self, step: int, loss: float) -> None:
        """Show how far the model is; a step before the last one shown is that of a new attempt."""
        if step < self._step:
            # The steps of the attempt that failed are to be taken once more.
            self._progress.skip(-self._step)
            self._step = 0
        self._progress.describe(f"{self._name} {self._number}/{self.models}", f"loss {loss:.1e}")
        self._progress.advance(step - self._step)
        self._step = step

    def end(self, result: str) -> None:
        """Write the result of the model; steps that it did not need are not waited for."""
        self._progress.skip(self.steps - self._step)
        self.write_line(self._name, result)

    def write_line(self, name: str, result: str) -> None:
        """Write what came of a metric."""
        self.write(f"{name:<{_NAME_WIDTH}} {result}")

    def write(self, line: str) -> None:
        """Write a whole line."""
        self._progress.write(line)
