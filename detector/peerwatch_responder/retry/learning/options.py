"""The flags of ``peerwatch-responder learn``."""

from __future__ import annotations

import argparse
from pathlib import Path

from peerwatch_common.command_line import whole_number

DESCRIPTION = """\
Learns the models that advise asks anew: from the corpus that is shipped, from labelled logs and
corrections of this site, and from logs without a label, on which the models vote."""

EPILOG = """\
It writes the models and says how right they are about mechanisms that they have not seen. Broken
off, the same command goes on. --neural and LOGS need the extra peerwatch[train].

examples:
  peerwatch-responder learn --history /var/lib/peerwatch/retry.jsonl --output retry.npz
  peerwatch-responder learn --neural --output retry.npz /var/log/failed-jobs
  peerwatch-responder learn --evaluate --neural --groups 8 --kept scores.jsonl
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "logs",
        nargs="*",
        type=Path,
        metavar="LOG",
        help="logs of failed jobs without a label: files, or folders of them",
    )
    parser.add_argument(
        "--labelled",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="labelled logs, JSON lines in the format of the corpus (docs/retry-model.md)",
    )
    parser.add_argument(
        "--history",
        type=Path,
        metavar="FILE",
        help="history of advise; what was corrected is learnt",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("retry-model.npz"),
        metavar="FILE",
        help="where the models are written (retry-model.npz)",
    )
    parser.add_argument(
        "--neural", action="store_true", help="learn the recurrent networks, too; needs torch"
    )
    parser.add_argument(
        "--evaluate",
        action="store_true",
        help="write no models; compare all methods, with ablations where --neural is given",
    )
    parser.add_argument(
        "--groups",
        type=_groups,
        default=None,
        metavar="N",
        help="leave out mechanisms in N groups; 0: each by itself (10; with --evaluate 0)",
    )
    parser.add_argument(
        "--by-source", action="store_true", help="with --evaluate: leave out sources instead"
    )
    parser.add_argument(
        "--kept",
        type=Path,
        metavar="FILE",
        help="with --evaluate: where what is done is kept, so that it can go on",
    )
    parser.add_argument("--seed", type=whole_number(0), default=0, help="of all that is drawn (0)")
    parser.add_argument(
        "--passes",
        type=whole_number(1),
        default=None,
        metavar="N",
        help="passes of the networks over all examples (8)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def _groups(text: str) -> int:
    value = whole_number(0)(text)
    if value == 1:
        raise argparse.ArgumentTypeError("'1' leaves nothing to learn from: 0, or 2 or more")
    return value
