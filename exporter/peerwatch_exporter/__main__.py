"""Entry of the exporter: flags, settings, what they ask for; nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from peerwatch_common.errors import ConfigError
from peerwatch_common.logs import set_up_logging
from peerwatch_common.web.server import ListenError
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.process.command_line import parse
from peerwatch_exporter.settings.isolated_load import SettingsReader

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from peerwatch_exporter.collector import Registration
    from peerwatch_exporter.process.assembly import OpenHost
    from peerwatch_exporter.settings.config import ExporterConfig

# Enough for threads that mostly wait; saves 2 MiB on a machine with 2 CPUs, more on larger ones.
_ARENAS = 2


def main(arguments: Sequence[str] | None = None, open_host: OpenHost | None = None) -> int:
    """Run the command line; return the exit status.

    Parameters
    ----------
    arguments
        Those of the command line; unset: of this process.
    open_host
        Lends the machine to read; unset: the one that this process runs on.
    """
    options = parse(arguments)
    set_up_logging(options.log_level, options.log_format)
    if options.command == "hook-path":
        sys.stdout.write(f"{Path(__file__).parent / 'hook'}\n")
        return 0
    if options.command == "collectors":
        sys.stdout.write(_table(registrations()))
        return 0
    reader = SettingsReader()
    registered = registrations()
    try:
        config = _settings(reader, options, registered)
        if options.check:
            return _check(config)
        return _run(options, config, registered, open_host)
    except ConfigError as error:
        count = len(error.mistakes)
        what = "1 mistake" if count == 1 else f"{count} mistakes"
        sys.stderr.write(f"peerwatch-exporter: {what} in the settings\n")
        sys.stderr.writelines(f"  {mistake}\n" for mistake in error.mistakes)
        return 2
    except ListenError as error:
        sys.stderr.write(f"peerwatch-exporter: {error}\n")
        return 1


def _table(registered: Mapping[str, Registration]) -> str:
    rows = [("COLLECTOR", "DEFAULT", "EVERY", "PROCESS", "SUMMARY")]
    rows += [
        (
            item.name,
            "on" if item.default_enabled else "off",
            f"{item.interval_seconds:g} s",
            item.process,
            item.summary,
        )
        for item in registered.values()
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "".join(
        "  ".join([*(f"{row[column]:<{widths[column]}}" for column in range(4)), row[4]]) + "\n"
        for row in rows
    )


def _settings(
    reader: SettingsReader, options: argparse.Namespace, registered: Mapping[str, Registration]
) -> ExporterConfig:
    paths = {
        name: getattr(options, f"path_{name}") for name in ("procfs", "sysfs", "kmsg", "rootfs")
    }
    given = {name: path for name, path in paths.items() if path is not None}
    web = {} if options.web_config_file is None else {"config_file": options.web_config_file}
    return reader.load(
        options.config,
        listen=options.listen,
        known_collectors=registered,
        overrides={"paths": given, "web": web},
    )


def _check(config: ExporterConfig) -> int:
    """Read what the settings name, as a start would."""
    if config.web.config_file is not None:
        from peerwatch_common.web.load import load_web_settings  # noqa: PLC0415 - 17 MiB

        load_web_settings(Path(config.web.config_file))
    sys.stdout.write("The settings have no mistakes.\n")
    return 0


def _run(
    options: argparse.Namespace,
    config: ExporterConfig,
    registered: Mapping[str, Registration],
    open_host: OpenHost | None,
) -> int:
    # Before the first thread: a heap that a thread has got stays.
    from peerwatch_common.memory import limit_arenas, search_rarely  # noqa: PLC0415

    limit_arenas(_ARENAS)
    from peerwatch_exporter.process.assembly import assembled, this_host  # noqa: PLC0415

    with assembled(config, registered, open_host or this_host) as parts:
        if options.command == "bench":
            from peerwatch_exporter.process.bench import bench  # noqa: PLC0415

            sys.stdout.write(bench(parts, seconds=options.seconds or 10.0, as_json=options.json))
        else:
            from peerwatch_common.settings.reload import Reload  # noqa: PLC0415
            from peerwatch_exporter.process.service import (  # noqa: PLC0415
                FIXED,
                Exporter,
                run_until_ended,
            )

            def reload_of(exporter: Exporter) -> Reload[ExporterConfig]:
                return Reload(
                    options.config,
                    config,
                    load=lambda: _settings(SettingsReader(), options, registered),
                    apply=exporter.follow,
                    fixed=FIXED,
                    facts=parts.sources.reloads,
                    clock=parts.sources.clock,
                )

            search_rarely()
            run_until_ended(lambda: Exporter(parts), reload_of=reload_of)
    return 0


if __name__ == "__main__":
    sys.exit(main())
