"""Runs the parts, one after the other, and writes down what they found."""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING

import pynvml

from gpu.part import PartFailedError, PartSkippedError, Result
from gpu.parts import parts

if TYPE_CHECKING:
    from gpu.part import Node

# Of the whole run; what has not begun by then is left out and said so.
BUDGET_SECONDS = 7 * 60.0
_SIMULATED = (
    "**This is a run on the simulated driver of the demo: no GPU was to be had.** It shows that "
    "every part runs, and nothing of a real driver. On a machine with a driver, `make gpu` writes "
    "this file anew: the same tables with the values of that GPU and its driver, the differences "
    "to `nvidia-smi`, and the times of training on CUDA and CPU."
)


def report(node: Node) -> tuple[str, list[str]]:
    """Return the document, and what does not hold."""
    begun = time.monotonic()
    results: list[Result] = []
    skipped: list[tuple[str, str]] = []
    for name, run in parts():
        if time.monotonic() - begun > BUDGET_SECONDS:
            skipped.append((name, f"the run had used its {BUDGET_SECONDS:.0f} s"))
            continue
        try:
            results.append(run(node))
        except PartSkippedError as reason:
            skipped.append((name, str(reason)))
        except Exception as error:
            kind = "" if isinstance(error, PartFailedError) else f"{type(error).__name__}: "
            results.append(Result(name.replace("_", " "), failures=[f"{kind}{error}"]))
    return _document(node, results, skipped, time.monotonic() - begun), [
        f"{result.title}: {failure}" for result in results for failure in result.failures
    ]


def _document(
    node: Node, results: list[Result], skipped: list[tuple[str, str]], seconds: float
) -> str:
    lines = [
        "# On a GPU",
        "",
        "Written by `make gpu`, which tries on a GPU whatever needs one.",
        "",
    ]
    if node.simulated:
        lines += [_SIMULATED, ""]
    lines.append(f"{_machine()}; Python {platform.python_version()}; {seconds:.0f} s.")
    for result in results:
        lines += ["", f"## {result.title}", ""]
        lines += [f"- **Does not hold:** {failure}" for failure in result.failures]
        lines += result.lines
    if skipped:
        lines += ["", "## Not run", ""]
        lines += [f"- `{name}`: {reason}." for name, reason in skipped]
    text = "\n".join(lines) + "\n"
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text


def _machine() -> str:
    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        return (
            f"{pynvml.nvmlDeviceGetCount()} x {pynvml.nvmlDeviceGetName(handle)}, driver "
            f"{pynvml.nvmlSystemGetDriverVersion()}"
        )
    finally:
        pynvml.nvmlShutdown()
