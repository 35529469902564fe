"""The progress of a command over many cases, what is wrong with some of them, and a summary."""

from __future__ import annotations

from collections import Counter
from types import TracebackType
from typing import Self, TextIO

from peerwatch_common.progress import Progress
from peerwatch_detector.backtest.run import CaseResult


class CaseProgress:
    """Shows how far a command is and names the cases that are broken, on the error stream.

    Parameters
    ----------
    total
        Number of cases.
    out
        Where it goes.
    """

    def __init__(self, total: int, out: TextIO) -> None:
        self.total = total
        self.refused: list[str] = []
        self._done = 0
        self._not_compared: Counter[str] = Counter()
        self._progress = Progress(out, total, "case")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.close()

    def add(self, result: CaseResult) -> None:
        """Count one more case as done, and name it if it is broken or incomplete."""
        self._done += 1
        self._not_compared.update(result.not_compared)
        if result.error or result.incomplete:
            self.refuse(result.error or result.incomplete)
        self._progress.describe(result.case)
        self._progress.advance()

    def refuse(self, reason: str) -> None:
        """Name a case that is broken, incomplete, or cannot be evaluated."""
        self.refused.append(reason)
        self._progress.write(f"peerwatch-detector: {reason}")

    def output(self, line: str, out: TextIO) -> None:
        """Write a line of the command's output, which may go to the same terminal."""
        self._progress.write(line, out)

    def finish(self) -> int:
        """Write the summary and return the exit code: 2 if a case was refused."""
        self._progress.close()
        self._progress.write(f"{self._done}/{self.total} cases")
        if self._not_compared:
            counts = ", ".join(f"{name} in {count}" for name, count in self._not_compared.items())
            self._progress.write(
                f"Not compared, as the configuration does not name them: {counts} case(s)."
            )
        return 2 if self.refused else 0
