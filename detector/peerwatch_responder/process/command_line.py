"""The flags of ``peerwatch-responder`` and their help."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from peerwatch_common.command_line import add_logging
from peerwatch_common.completion import add_completion
from peerwatch_responder import __version__
from peerwatch_responder.retry.command import options as advising
from peerwatch_responder.retry.learning import options as learning

if TYPE_CHECKING:
    from collections.abc import Sequence

_DESCRIPTION = """\
Answers alerts about faulty nodes: decides within limits, writes down, acts, and undoes. Unless the
settings say otherwise it is a dry run that acts on nothing. Says whether a failed job should be
started again."""

_EPILOG = """\
exit status:
  0  done        1  an error        2  a mistake in flags or settings        3  refused
  `advise` says its advice by it: see `peerwatch-responder advise --help`

examples:
  peerwatch-responder run --config /etc/peerwatch/responder.yaml
  peerwatch-responder run --config responder.yaml --check
  peerwatch-responder plan --config responder.yaml
  peerwatch-responder pause --config responder.yaml "driver upgrade"
  peerwatch-responder undo --config responder.yaml 1f0c9a52d7b3e846
"""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="peerwatch-responder",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"peerwatch-responder {__version__}")
    add_completion(parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = _command(commands, "run", "take alerts, decide and act")
    run.add_argument("--check", action="store_true", help="only check the settings")
    run.add_argument(
        "--dry-run", action="store_true", help="act on nothing, whatever the settings say"
    )
    add_logging(run)
    for name, text in (
        ("status", "show what is under way, out, paused or stopped"),
        ("plan", "show what is decided about each alert now, and why"),
        ("history", "show all responses"),
        ("resume", "go on after a pause, and reset the breaker"),
    ):
        _command(commands, name, text)
    pause = _command(commands, "pause", "begin nothing new")
    pause.add_argument("reason", help="why; it is shown wherever something waits for it")
    undo = _command(commands, "undo", "put back what a response has changed")
    undo.add_argument("key", help="the response, as history shows it")
    undo.add_argument(
        "--unchecked", action="store_true", help="put the node back although its checks do not pass"
    )
    advise = commands.add_parser(
        "advise",
        help="say whether a failed job should be started again",
        description=advising.DESCRIPTION,
        epilog=advising.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_config(advise)
    advise.add_argument("--json", action="store_true", help="print JSON")
    advising.add_options(advise)
    learn = commands.add_parser(
        "learn",
        help="learn the models of advise anew, from corrections and logs of this site",
        description=learning.DESCRIPTION,
        epilog=learning.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_config(learn)
    learning.add_options(learn)
    return parser


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the flags."""
    return make_parser().parse_args(arguments)


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text.capitalize() + ".")
    _add_config(parser)
    if name != "run":
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument(
            "--url", metavar="URL", help="where the responder runs (as the settings say)"
        )
    return parser


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="YAML file with settings (none: defaults)"
    )
