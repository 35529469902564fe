"""Command line of the exporter: flags, configuration, runner, server; nothing else."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from peerwatch_exporter import __version__
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.config import ConfigError, load_config
from peerwatch_exporter.runner import Runner, enabled_collectors
from peerwatch_exporter.server import ListenError, MetricsServer, make_app
from peerwatch_exporter.sources import real_sources

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from peerwatch_exporter.collector import Registration
    from peerwatch_exporter.config import ExporterConfig

_LOG = logging.getLogger("peerwatch_exporter")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        level=options.log_level.upper(),
        format="time=%(asctime)s level=%(levelname)s logger=%(name)s %(message)s",
    )
    if options.command == "hook-path":
        sys.stdout.write(f"{Path(__file__).parent / 'hook'}\n")
        return 0
    registered = registrations()
    if options.command == "collectors":
        sys.stdout.write(_table(registered))
        return 0
    try:
        config = load_config(options.config, listen=options.listen, known_collectors=registered)
    except ConfigError as error:
        count = len(error.mistakes)
        what = "1 mistake" if count == 1 else f"{count} mistakes"
        sys.stderr.write(f"peerwatch-exporter: {what} in the settings\n")
        sys.stderr.writelines(f"  {mistake}\n" for mistake in error.mistakes)
        return 2
    return _serve(config, registered)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="peerwatch-exporter",
        description="Publishes what one training node knows about itself as Prometheus metrics.",
    )
    parser.add_argument(
        "command",
        nargs="?",
        choices=("serve", "collectors", "hook-path"),
        default="serve",
        help="serve the page (default); list the collectors; print the directory to put in "
        "PYTHONPATH of a training job so that its ranks write heartbeats",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file with settings")
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="where to serve; wins over the file (0.0.0.0:9400)"
    )
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info"
    )
    parser.add_argument("--version", action="version", version=f"peerwatch-exporter {__version__}")
    return parser


def _table(registered: Mapping[str, Registration]) -> str:
    rows = [("COLLECTOR", "DEFAULT", "SUMMARY")]
    rows += [
        (item.name, "on" if item.default_enabled else "off", item.summary)
        for item in registered.values()
    ]
    width = max(len(name) for name, _, _ in rows)
    return "".join(f"{name:<{width}}  {default:<7}  {text}\n" for name, default, text in rows)


def _serve(config: ExporterConfig, registered: Mapping[str, Registration]) -> int:
    sources = real_sources(config)
    runner = Runner(
        enabled_collectors(config, sources, registered),
        sources,
        deadline_seconds=config.deadline_seconds,
        version=__version__,
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        server = MetricsServer(config.listen.address, config.listen.port, make_app(runner))
    except ListenError as error:
        sys.stderr.write(f"peerwatch-exporter: {error}\n")
        return 1
    server.start()
    _LOG.info(
        "serving address=%s port=%d collectors=%s",
        config.listen.address,
        server.port,
        ",".join(runner.names),
    )
    stop.wait()
    server.stop()
    _LOG.info("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
