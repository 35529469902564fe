"""The options of ``peerwatch-detector diagnose``; reading them needs none of the extras."""

from __future__ import annotations

import argparse
import math
from pathlib import Path


def add_diagnose(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    common: argparse.ArgumentParser,
) -> None:
    """Add the command to the parser.

    Parameters
    ----------
    commands
        The commands of the whole parser.
    common
        Options that every command has, ``--config`` among them.
    """
    command = commands.add_parser(
        "diagnose",
        parents=[common],
        help="print what made a job fail: the verdicts that stand about it, or recorded cases",
    )
    whose = command.add_mutually_exclusive_group(required=True)
    whose.add_argument("--job-id", help="training job, whose verdicts are read from Prometheus")
    whose.add_argument(
        "cases",
        nargs="*",
        # argparse needs it to be not required within the group.
        default=[],
        type=Path,
        metavar="CASE",
        help="folder of a recorded case, of whose events the root is found; no server is asked",
    )
    command.add_argument(
        "--at",
        type=_finite,
        metavar="SECONDS",
        help="leave out what was seen later: Unix time, or seconds from the start of a case",
    )
    command.add_argument(
        "--root",
        action="store_true",
        help="of a job: also read what is known of its nodes, and find the root of its failure; "
        "cases are always asked for it",
    )
    command.add_argument(
        "--stacks",
        action="store_true",
        help="also ask the exporters for the Python stacks of the ranks that are named; they need "
        "heartbeat.stacks, this program exporters.username and exporters.password_file; cases have "
        "none",
    )
    command.add_argument("--json", action="store_true", help="for programs")
    command.epilog = (
        "The verdicts are those that running detectors publish. The exit code is 0 whether or not "
        "any stands, 1 if nobody has diagnosed the job or a stack could not be had, and 2 if a "
        "case is broken or cannot be asked for stacks."
    )


def _finite(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is no finite number of seconds.")
    return value
