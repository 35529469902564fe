"""Entry of the checks: flags, and what they ask for; nothing else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from peerwatch_checks.check import checks
from peerwatch_checks.process.command_line import parse
from peerwatch_checks.process.listing import listing

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parse(arguments)
    sys.stdout.write(listing(checks().values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
