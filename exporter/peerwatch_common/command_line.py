"""Flags and errors that are the same in every program."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Exit status of what Ctrl-C ended, as shells have it: 128 and the signal's number.
INTERRUPTED = 130


def add_logging(group: argparse._ActionsContainer) -> None:
    """Add the flags of the log, which ``logs.set_up_logging`` takes."""
    group.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="what is logged at least (%(default)s)",
    )
    group.add_argument(
        "--log-format",
        choices=("logfmt", "json"),
        default="logfmt",
        help="how a line looks (%(default)s)",
    )


def whole_number(low: int, high: int | None = None) -> Callable[[str], int]:
    """Return what reads a whole number within limits, for ``type`` of an argument.

    Parameters
    ----------
    low
        The least.
    high
        The most; None: any.
    """
    limits = f"of at least {low}" if high is None else f"from {low} to {high}"

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low or (high is not None and value > high):
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number {limits}")
        return value

    return read
