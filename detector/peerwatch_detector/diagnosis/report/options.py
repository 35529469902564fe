"""The options of ``peerwatch-detector diagnose``; reading them needs none of the extras."""

from __future__ import annotations

import argparse


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
        help="print the verdicts that stand about a job: which rank, what, how sure, what to do",
    )
    command.add_argument("--job-id", required=True, help="training job")
    command.add_argument(
        "--stacks",
        action="store_true",
        help="also ask the exporters for the Python stacks of the ranks that are named; they need "
        "heartbeat.stacks, this program exporters.username and exporters.password_file",
    )
    command.add_argument("--json", action="store_true", help="for programs")
    command.epilog = (
        "The verdicts are those that running detectors publish. The exit code is 0 whether or not "
        "any stands, and 1 if nobody has diagnosed the job or a stack could not be had."
    )
