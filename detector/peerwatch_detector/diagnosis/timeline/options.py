"""The options of ``peerwatch-detector timeline``; reading them needs none of the extras."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def add_timeline(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    common: argparse.ArgumentParser,
    moment: Callable[[str], float],
) -> None:
    """Add the command to the parser.

    Parameters
    ----------
    commands
        The commands of the whole parser.
    common
        Options that every command has, ``--config`` among them.
    moment
        Reads a time.
    """
    command = commands.add_parser(
        "timeline",
        parents=[common],
        help="merge the spans of a job's ranks into one Chrome trace, which Perfetto opens",
    )
    command.add_argument("output", type=Path, metavar="FILE", help="trace to write (.json)")
    command.add_argument("--job-id", required=True, help="training job")
    command.add_argument(
        "--start",
        type=moment,
        metavar="T",
        help="begin, Unix or ISO 8601 (default: a minute before --end)",
    )
    command.add_argument(
        "--end", type=moment, metavar="T", help="end, Unix or ISO 8601 (default: now)"
    )
    command.add_argument(
        "--exporter",
        action="append",
        default=[],
        metavar="URL",
        help="ask this exporter, such as http://node-1:9400, in place of those that Prometheus "
        "knows for the job; repeatable",
    )
    command.epilog = "Exporters keep the spans of about ten minutes; docs/spans.md has more."
