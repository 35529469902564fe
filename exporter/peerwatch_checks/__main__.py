"""Entry of the checks: flags, and what they ask for; nothing else."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from peerwatch_checks.process.command_line import parse
from peerwatch_common.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status.

    Whatever goes wrong here is no fault of the node: 3, and 0 in a prolog, which would drain it.
    """
    options = parse(arguments)
    unknown = 3 if options.mode == "manual" else 0
    try:
        if options.what == ["list"]:
            from peerwatch_checks.process.listing import listing  # noqa: PLC0415 - no processes
            from peerwatch_checks.settings.load import load_settings  # noqa: PLC0415

            sys.stdout.write(listing(load_settings(options.config).checks.values()))
            return 0
        if options.write_expectation is not None:
            from peerwatch_checks.process.expecting import write  # noqa: PLC0415

            sys.stdout.write(write(options))
            return 0
        from peerwatch_checks.process.program import run  # noqa: PLC0415

        return run(options)
    except ConfigError as error:
        count = len(error.mistakes)
        what = "1 mistake" if count == 1 else f"{count} mistakes"
        sys.stderr.write(f"peerwatch-check: {what} in flags or settings\n")
        sys.stderr.writelines(f"  {mistake}\n" for mistake in error.mistakes)
        return unknown
    except Exception:
        traceback.print_exc()
        return unknown


if __name__ == "__main__":
    sys.exit(main())
