"""The options of ``peerwatch-detector stragglers``; reading them needs none of the extras."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from peerwatch_common.command_line import add_logging


def add_stragglers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser.

    Parameters
    ----------
    commands
        The commands of the whole parser.
    """
    command = commands.add_parser(
        "stragglers",
        help="say from a trace of its operations what slows a job: a machine, a stage or uneven "
        "sequences",
    )
    command.add_argument(
        "trace",
        type=Path,
        metavar="TRACE",
        help="operations as a table (CSV, or parquet with pyarrow), or spans (Chrome trace or JSON "
        "lines); CSV and JSON also compressed by gzip",
    )
    command.add_argument("--json", action="store_true", help="everything as JSON")
    command.add_argument(
        "--steps",
        type=_steps,
        metavar="FIRST-LAST",
        help="only these training steps, such as 100-199 or 100 (default: all)",
    )
    add_logging(command)
    command.epilog = "docs/stragglers.md says what the numbers mean and which columns a table has."


def _steps(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,10})(?:-(\d{1,10}))?", text)
    if not found:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no range of steps; give FIRST-LAST, such as 100-199"
        )
    first = int(found[1])
    last = int(found[2] or first)
    if last < first:
        raise argparse.ArgumentTypeError(f"{text!r} ends before it begins")
    return first, last
