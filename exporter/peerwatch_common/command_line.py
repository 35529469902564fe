"""Flags and errors that are the same in every program."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


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
