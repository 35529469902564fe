"""The options of ``peerwatch-detector prioritize``; reading them needs none of the extras."""

from __future__ import annotations

import argparse
from pathlib import Path

from peerwatch_common.command_line import whole_number


def add_prioritize(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser
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
        "prioritize",
        parents=[common],
        help="learn from labelled cases in which order the metrics are asked",
    )
    command.add_argument(
        "cases", type=Path, nargs="+", metavar="CASE", help="case folder, or folder of cases"
    )
    command.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="configuration with the order (.yaml): that of --config, everything else kept, or "
        "only the order (default: only the order, to stdout)",
    )
    command.add_argument(
        "--picture", type=Path, metavar="FILE", help="a picture of the tree (.svg)"
    )
    command.add_argument(
        "--depth",
        type=whole_number(1, 20),
        default=5,
        metavar="N",
        help="most splits from the root to a leaf, 1 to 20 (default: %(default)s)",
    )
    command.add_argument(
        "--seed",
        type=whole_number(0, 2**32 - 1),
        default=0,
        metavar="N",
        help="deals cases to the folds of the cross-validation and breaks ties between splits "
        "(default: %(default)s)",
    )
