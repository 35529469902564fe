"""The exporter's flags and its help."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from peerwatch_common.command_line import add_logging
from peerwatch_common.completion import add_completion
from peerwatch_exporter import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = ("serve", "collectors", "hook-path", "bench")

_DESCRIPTION = """\
Publishes what one training node knows about itself as Prometheus metrics: GPUs, NVLink, PCIe,
RDMA NICs, XID errors, CPU, memory, storage, TCP, and the ranks of training jobs."""

_COMMANDS_HELP = """\
serve (default): serve the endpoints until SIGTERM.
collectors: list the collectors and whether they run.
hook-path: print the directory to put into PYTHONPATH of a training job, so that its ranks write
heartbeats.
bench: print what each source costs on this node."""

_EPILOG = """\
endpoints:
  /metrics              everything, for a scrape every 15 to 30 s
  /metrics/fast         what the detector reads, for a scrape every second; ?scraper=NAME where
                        several scrapers share an address
  /burst                recent raw samples as JSON, if the sampler is on
  /spans                single spans of the ranks' last minutes as JSON lines
  /stack                the Python stacks of a rank, where heartbeat.stacks is set
  /-/healthy /-/ready   liveness and readiness
  /                     the landing page, for people

signals:
  SIGTERM, SIGINT       end within 2 s
  SIGHUP                read the settings and the web configuration file again; settings with a
                        mistake change nothing
  SIGUSR1               let go of the GPU driver for 5 min, so that it can be unloaded

environment:
  NOTIFY_SOCKET         set by systemd (Type=notify): told when the first snapshot is there
  WATCHDOG_USEC         set by systemd (WatchdogSec=): told that snapshots are being taken

exit status:
  0  ended by a signal, or did what it was asked for
  1  cannot listen on the address
  2  a mistake in the flags, the settings or the web configuration; all of them are listed

examples:
  peerwatch-exporter
  peerwatch-exporter --config /etc/peerwatch/exporter.yaml --listen 127.0.0.1:9400
  peerwatch-exporter --web.config.file /etc/peerwatch/web-config.yaml
  peerwatch-exporter --path.procfs /host/proc --path.sysfs /host/sys      # in a container
  peerwatch-exporter bench --seconds 10
"""


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the flags; ends the process with 2 and a sentence if they make no sense."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.command != "bench" and (options.json or options.seconds is not None):
        parser.error("--seconds and --json belong to the command bench")
    if options.check and options.command != "serve":
        parser.error("--check belongs to the command serve")
    if options.seconds is not None and not 1 <= options.seconds <= 3600:
        parser.error(f"--seconds: {options.seconds:g} is not between 1 and 3600")
    return options


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="peerwatch-exporter",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "command", nargs="?", choices=COMMANDS, default="serve", help=_COMMANDS_HELP
    )
    parser.add_argument("--version", action="version", version=f"peerwatch-exporter {__version__}")
    add_completion(parser)
    _add_settings(parser.add_argument_group("settings", "They win over the file."))
    add_logging(parser.add_argument_group("log (standard error)"))
    bench = parser.add_argument_group("bench")
    bench.add_argument("--seconds", type=float, metavar="S", help="how long it measures (10)")
    bench.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _add_settings(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="YAML file with settings; exporter.example.yaml shows them all (none: defaults)",
    )
    group.add_argument(
        "--listen", metavar="HOST:PORT", help="where to serve (0.0.0.0:9400); port 0: any free one"
    )
    group.add_argument(
        "--web.config.file",
        dest="web_config_file",
        type=Path,
        metavar="FILE",
        help="TLS and basic authentication, in the format of Prometheus' exporter-toolkit",
    )
    group.add_argument(
        "--check",
        action="store_true",
        help="only check the settings and the web configuration: exit with 0, or with 2 and a "
        "line for each mistake",
    )
    for name, default, what in (
        ("procfs", "/proc", "the node's proc file system"),
        ("sysfs", "/sys", "the node's sys file system"),
        ("kmsg", "/dev/kmsg", "the kernel log; may be missing"),
        ("rootfs", "/", "the node's root, for the space of filesystems"),
    ):
        group.add_argument(
            f"--path.{name}",
            dest=f"path_{name}",
            type=Path,
            metavar="PATH",
            help=f"{what} ({default})",
        )
