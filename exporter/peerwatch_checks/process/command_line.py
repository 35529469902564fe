"""The flags of ``peerwatch-check`` and their help."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from peerwatch_checks import __version__
from peerwatch_checks.check import SUITES, checks
from peerwatch_common.completion import add_completion

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = (*SUITES, "pair", "offline", "list")
# What compares nothing with nodes that are not there.
_NOT_ASKING = frozenset({"pair", "offline", "list"})
MODES = ("manual", "prolog", "epilog", "health")
_SLURM = frozenset((*MODES[1:], *(f"--mode={mode}" for mode in MODES[1:])))

_DESCRIPTION = """\
Tests whether this node is fit to train: by what it has and how it is set up, by what its parts
achieve, and by what it achieves together with other nodes."""

_WHAT_HELP = """\
config: what only reads, within a minute. light: within a minute. full: within 3 minutes, and 6 more
with other nodes. pair: this node with other ones, two at a time. offline: with all others, where
pairs show nothing. list: print the checks, what each needs, takes and means. Or names of checks."""

_EPILOG = """\
exit status:
  0  all passed             1  a warning
  2  a failure              3  something was not tested, or a mistake in flags or settings
  with --mode of Slurm: 2 for a failure of severity high, for which the node is drained, else 0

environment:
  NODE_NAME                 the node's name in results
  SLURM_JOB_ID, SLURM_JOB_GPUS   the job, and the only GPUs that are tested (prolog, epilog)
  POD_UID                   the pod in which it runs: its own GPUs are not in use by others

examples:
  peerwatch-check light
  peerwatch-check memory_copy --json
  peerwatch-check full --config /etc/peerwatch/checks.yaml --output results.jsonl
  peerwatch-check config --write-expectation /etc/peerwatch/gpu-node.yaml
  peerwatch-check light --mode epilog       # in Slurm's Epilog
"""


class _Words(tuple[str, ...]):
    """What completes the command line; checks of the site's own are known later."""

    __slots__ = ()

    def __contains__(self, _word: object) -> bool:
        return True


class _Parser(argparse.ArgumentParser):
    """Ends with 3 on a mistake: 2 says that a node has failed."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(0 if not _SLURM.isdisjoint(sys.argv) else 3, f"{self.prog}: {message}\n")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _Parser(
        prog="peerwatch-check",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    words: Any = _Words((*COMMANDS, *checks()))
    parser.add_argument("what", nargs="+", choices=words, metavar="WHAT", help=_WHAT_HELP)
    parser.add_argument("--version", action="version", version=f"peerwatch-check {__version__}")
    add_completion(parser)
    _add_run(parser.add_argument_group("run"))
    _add_results(parser.add_argument_group("results"))
    return parser


def _add_run(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--config", type=Path, metavar="FILE", help="YAML file with settings (none: defaults)"
    )
    group.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help="how long the run may take; what is left is skipped (by command)",
    )
    group.add_argument(
        "--mode",
        choices=MODES,
        default="manual",
        help="prolog, epilog or health (HealthCheckProgram): Slurm's rules for exit status, GPUs "
        "and time (%(default)s)",
    )
    group.add_argument(
        "--even-if-busy",
        action="store_true",
        help="put load on the node also while others use it",
    )
    group.add_argument(
        "--write-expectation",
        type=Path,
        metavar="FILE",
        help="with config: test nothing, write what this node has as what its kind must have",
    )
    group.add_argument(
        "--peers",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="results of other nodes to compare with, as --output writes them",
    )
    _add_prometheus(group)


def _add_prometheus(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--prometheus",
        metavar="URL",
        help="compare settings (peer_config) and what is measured with other nodes, asked of "
        "this server",
    )
    group.add_argument(
        "--job-id",
        metavar="ID",
        help="the other nodes are those of this job (all of the same GPU, CPU and machine)",
    )
    group.add_argument(
        "--selector",
        metavar="MATCHERS",
        help="the other nodes are those that these labels select, such as 'cluster=\"c1\"'",
    )


def _add_results(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--json", action="store_true", help="print a record per line instead of a table"
    )
    group.add_argument(
        "--reason",
        action="store_true",
        help="print only why the node is to be drained, a line; nothing if it is not",
    )
    group.add_argument("--output", type=Path, metavar="FILE", help="write the records to a file")
    group.add_argument(
        "--textfile",
        type=Path,
        metavar="FILE",
        help="write the results for node_exporter's textfile collector; ends in .prom",
    )
    group.add_argument(
        "--spool",
        type=Path,
        metavar="FOLDER",
        help="where the exporter reads the results; wins over the settings",
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} must be seconds from 1 to 86400")
    return value


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the flags; ends the process with 3 and a sentence if they make no sense."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if "list" in options.what and len(options.what) > 1:
        parser.error(f"list stands alone, not with {', '.join(options.what[:5])}")
    if options.write_expectation is not None and options.what != ["config"]:
        parser.error("--write-expectation goes with config alone")
    if options.reason and options.json:
        parser.error("--reason and --json both say what is printed; one of them")
    asked = (options.prometheus, options.job_id, options.selector)
    if any(each is not None for each in asked) and _NOT_ASKING.issuperset(options.what):
        flags = "--prometheus, --job-id and --selector"
        parser.error(f"{flags}: {options.what[0]} compares nothing with other nodes' results")
    if options.textfile is not None and options.textfile.suffix != ".prom":
        parser.error(f"--textfile: {str(options.textfile)!r} must end in .prom")
    return options
