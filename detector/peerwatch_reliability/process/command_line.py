"""The flags of ``peerwatch-reliability`` and their help."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from peerwatch_common.command_line import add_logging
from peerwatch_common.completion import add_completion
from peerwatch_reliability import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

_DESCRIPTION = """\
Keeps the books of a cluster: ETTR, mean time to failure, goodput, and the nodes that fail again and
again. It reads the history of jobs (Slurm's accounting, or kube-state-metrics' series) and
Prometheus, computes, and publishes; it stores nothing."""

_EPILOG = """\
exit status:
  0  done        1  an error        2  a mistake in flags or settings

examples:
  peerwatch-reliability report --config reliability.yaml
  peerwatch-reliability report --config reliability.yaml --format html > report.html
  peerwatch-reliability lemons --config reliability.yaml
  peerwatch-reliability run --config /etc/peerwatch/reliability.yaml
"""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="peerwatch-reliability",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="version", version=f"peerwatch-reliability {__version__}"
    )
    add_completion(parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = _command(commands, "run", "make the books again and again, and publish them")
    run.add_argument("--check", action="store_true", help="only check the settings")
    add_logging(run)
    report = _command(commands, "report", "make the books once and print them")
    report.add_argument(
        "--format", choices=("text", "json", "html"), default="text", help="how (%(default)s)"
    )
    report.add_argument(
        "--json", dest="format", action="store_const", const="json", help="as --format json"
    )
    lemons = _command(commands, "lemons", "print the nodes that fail again and again")
    lemons.add_argument("--json", action="store_true", help="print JSON, with all thresholds")
    return parser


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the flags."""
    return make_parser().parse_args(arguments)


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text.capitalize() + ".")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="YAML file with settings (none: defaults)"
    )
    return parser
