"""Entry of the responder: flags, and what they ask for; nothing else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from peerwatch_common.errors import ConfigError, PeerwatchError
from peerwatch_common.logs import set_up_logging
from peerwatch_responder.process.command_line import parse

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from peerwatch_responder.settings.config import ResponderConfig
    from peerwatch_responder.settings.load import Settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = parse(arguments)
    try:
        if options.command == "advise" and options.config is None:
            return _advise(options, None)
        forced = options.command == "run" and options.dry_run
        from peerwatch_responder.settings.load import load_settings  # noqa: PLC0415 - after --help

        settings = load_settings(options.config, dry_run=forced)
        return _run(options, settings)
    except ConfigError as error:
        count = len(error.mistakes)
        what = "1 mistake" if count == 1 else f"{count} mistakes"
        sys.stderr.write(f"peerwatch-responder: {what} in the settings\n")
        sys.stderr.writelines(f"  {mistake}\n" for mistake in error.mistakes)
        return 2
    except (PeerwatchError, OSError) as error:
        sys.stderr.write(f"peerwatch-responder: {error}\n")
        return 1


def _run(options: argparse.Namespace, settings: Settings) -> int:
    """Do what a command asks for, with no more of the program than it needs."""
    if options.command == "advise":
        return _advise(options, settings.config)
    if options.command == "learn":
        from peerwatch_responder.retry.learning.command import run_learn  # noqa: PLC0415 - numpy

        return run_learn(options)
    if options.command != "run":
        from peerwatch_responder.process.asking import ask  # noqa: PLC0415 - no server

        return ask(options, settings)
    if options.check:
        sys.stdout.write("The settings are sound.\n")
        return 0
    from peerwatch_responder.process.program import run_responder  # noqa: PLC0415 - a server

    set_up_logging(options.log_level, options.log_format)
    run_responder(settings)
    return 0


def _advise(options: argparse.Namespace, config: ResponderConfig | None) -> int:
    """Advise by settings; None: by the defaults, without loading what acts on a cluster."""
    from peerwatch_responder.retry.command.advise import advise  # noqa: PLC0415 - no server
    from peerwatch_responder.settings.config import ResponderConfig  # noqa: PLC0415 - after --help

    return advise(options, ResponderConfig() if config is None else config)


if __name__ == "__main__":
    sys.exit(main())
