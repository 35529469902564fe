"""The flags of ``peerwatch-check`` and their help."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from peerwatch_checks import __version__
from peerwatch_common.completion import add_completion

if TYPE_CHECKING:
    from collections.abc import Sequence

_DESCRIPTION = "Tests whether this node is fit to train."


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="peerwatch-check",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"peerwatch-check {__version__}")
    add_completion(parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list", help="list the checks: what each needs, takes and means")
    return parser


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the flags; ends the process with 2 and a sentence if they make no sense."""
    return make_parser().parse_args(arguments)
