"""The commands that print and end."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

from peerwatch_reliability.report.document import document_of
from peerwatch_reliability.report.gather import Gatherer
from peerwatch_reliability.report.text import lemon_lines, report_lines
from peerwatch_reliability.report.view import view_of

if TYPE_CHECKING:
    import argparse

    from peerwatch_reliability.settings.config import ReliabilityConfig


def print_books(options: argparse.Namespace, config: ReliabilityConfig) -> None:
    """Print what ``report`` and ``lemons`` ask for.

    Raises
    ------
    SourceError
        If the scheduler cannot be asked.
    """
    sys.stderr.write(f"Reading {config.window_days:g} days of accounting ...\n")
    document = document_of(Gatherer(config).books(time.time()))
    if options.command == "lemons":
        lemons = document["lemons"]
        if options.json:
            sys.stdout.write(json.dumps(lemons) + "\n")
            return
        sys.stdout.writelines(f"missing: {each}\n" for each in document["missing"])
        sys.stdout.writelines(f"{line}\n" for line in lemon_lines(lemons))
    elif options.format == "json":
        sys.stdout.write(json.dumps(document) + "\n")
    elif options.format == "html":
        sys.stdout.write(view_of(document).decode())
    else:
        sys.stdout.writelines(f"{line}\n" for line in report_lines(document))
