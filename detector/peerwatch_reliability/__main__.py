"""Entry of the program: flags, and what they ask for; nothing else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from peerwatch_common.errors import ConfigError, PeerwatchError
from peerwatch_common.logs import set_up_logging
from peerwatch_reliability.process.command_line import parse

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = parse(arguments)
    from peerwatch_common.settings.load import validated  # noqa: PLC0415 - after --help
    from peerwatch_common.settings.yaml_file import read_yaml  # noqa: PLC0415
    from peerwatch_reliability.settings.config import ReliabilityConfig  # noqa: PLC0415

    try:
        data = read_yaml(options.config) if options.config is not None else {}
        config = validated(ReliabilityConfig, data)
        if options.command != "run":
            from peerwatch_reliability.process.printing import print_books  # noqa: PLC0415

            print_books(options, config)
        elif options.check:
            sys.stdout.write("The settings are sound.\n")
        else:
            from peerwatch_reliability.process.program import run_service  # noqa: PLC0415

            set_up_logging(options.log_level, options.log_format)
            run_service(config)
    except ConfigError as error:
        count = len(error.mistakes)
        what = "1 mistake" if count == 1 else f"{count} mistakes"
        sys.stderr.write(f"peerwatch-reliability: {what} in the settings\n")
        sys.stderr.writelines(f"  {mistake}\n" for mistake in error.mistakes)
        return 2
    except (PeerwatchError, OSError) as error:
        sys.stderr.write(f"peerwatch-reliability: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
