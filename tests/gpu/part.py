"""What a part of the run gets, and what it hands to the report."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

# Nothing here takes long unless it hangs; a busy machine may need most of it.
PATIENCE_SECONDS = 90.0
# A job's healthy pauses are seconds long.
_COMPARISONS, _BETWEEN_SECONDS = 5, 3.0
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_Answer = TypeVar("_Answer")
Sample = tuple[str, Mapping[str, str], float]


class PartSkippedError(Exception):
    """This machine lacks what the part needs; the text says what."""


class PartFailedError(Exception):
    """What was tried does not hold; the text says what was seen and what was wanted."""


@dataclass
class Result:
    """What a part found out.

    Parameters
    ----------
    title
        Heading in the report.
    lines
        Markdown below it.
    failures
        What does not hold, one sentence each.
    """

    title: str
    lines: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Add a table."""
        self.lines += ["", f"| {' | '.join(header)} |", "|" + " --- |" * len(header)]
        self.lines += [f"| {' | '.join(map(str, row))} |" for row in rows]


def agreeing(compare: Callable[[], Result]) -> Result:
    """Return a comparison that holds, or the last of a few.

    A page and another source are not asked at the same moment: power halves when a job pauses in
    between. What differs each time differs.
    """
    for _ in range(_COMPARISONS - 1):
        result = compare()
        if not result.failures:
            return result
        time.sleep(_BETWEEN_SECONDS)
    return compare()


@dataclass(frozen=True)
class Exporter:
    """A running exporter.

    Parameters
    ----------
    pid
        Of its main process.
    url
        Its page.
    """

    pid: int
    url: str

    def samples(self) -> list[Sample]:
        """Return name, labels and value of every series of the page."""
        with urllib.request.urlopen(self.url, timeout=PATIENCE_SECONDS) as answer:
            text = answer.read().decode()
        return [
            (found[1], dict(_LABEL.findall(found[2] or "")), float(found[3]))
            for found in map(_SAMPLE.match, text.splitlines())
            if found
        ]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the sum of the series of this name with these labels; None if there is none."""
        values = [
            value
            for found, has, value in self.samples()
            if found == name and labels.items() <= has.items()
        ]
        return sum(values) if values else None

    def children(self) -> list[int]:
        """Return the processes that call NVML."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, IndexError, ValueError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if parent == self.pid and any(b"driver" in word for word in words):
                    found.append(int(folder.name))
        return sorted(found)


@dataclass(frozen=True)
class Node:
    """What the parts are tried on.

    Parameters
    ----------
    simulated
        Whether the driver is a simulated one.
    exporter
        The exporter that runs on it.
    """

    simulated: bool
    exporter: Exporter


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[Exporter]:
    """Run an exporter on a free port until the block ends.

    Raises
    ------
    PartFailedError
        If it does not serve.
    """
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"], stderr=file, env={**os.environ}
        )
    try:
        text = log.read_text
        port = until(
            lambda: re.search(r"\bserving\b.*\bport=(\d+)", text()), f"serving: {command}"
        )[1]
        exporter = Exporter(process.pid, f"http://127.0.0.1:{port}/metrics")
        until(lambda: exporter.value("gpu_present"), "a page with GPUs")
        yield exporter
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(question: Callable[[], _Answer | None], what: str) -> _Answer:
    """Return the first true answer.

    Raises
    ------
    PartFailedError
        If there is none in time.
    """
    end = time.monotonic() + PATIENCE_SECONDS
    while not (answer := question()):
        if time.monotonic() > end:
            raise PartFailedError(f"Waited {PATIENCE_SECONDS:.0f} s in vain for {what}.")
        time.sleep(0.2)
    return answer


def python(*module: str) -> list[str]:
    """Return the command that runs a module with this Python."""
    return [sys.executable, "-m", *module]
