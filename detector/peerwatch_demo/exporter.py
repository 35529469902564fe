"""The real exporter over a simulated node: ``python -m peerwatch_demo.exporter SCENARIO``.

It needs what the exporter needs and nothing else, so it runs wherever the exporter is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
from functools import partial
from typing import TYPE_CHECKING

from peerwatch_demo.simulated_node.scenarios import SUMMARIES
from peerwatch_exporter.__main__ import main as run_exporter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from peerwatch_exporter.process.assembly import Host
    from peerwatch_exporter.settings.config import ExporterConfig

_EPILOG = """\
All other flags are those of peerwatch-exporter and go to it; they stand behind SCENARIO.

examples:
  python -m peerwatch_demo.exporter pfc_storm
  python -m peerwatch_demo.exporter lost_gpu --onset 30 --listen 127.0.0.1:9400
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options, flags = make_parser().parse_known_args(arguments)
    return run_exporter(
        flags, partial(simulated_host, options.scenario, options.seed, options.onset)
    )


@contextlib.contextmanager
def simulated_host(
    scenario: str, seed: int, onset_seconds: float, config: ExporterConfig
) -> Iterator[Host]:
    """Lend a simulated node to an exporter.

    Parameters
    ----------
    scenario
        One of ``SUMMARIES``.
    seed
        Decides the differences between parts and the noise; equal seeds, equal nodes.
    onset_seconds
        When the scenario's change begins, in seconds after the start.
    config
        The exporter's settings.
    """
    # The node and the exporter's parts are loaded when the exporter has set up its memory.
    from peerwatch_demo.simulated_node.node import SimulatedNode  # noqa: PLC0415
    from peerwatch_exporter.process.assembly import Host  # noqa: PLC0415

    node = SimulatedNode(scenario, seed, onset_seconds)
    node.start()
    try:
        config = node.settings(config)
        note = (
            f"Everything here is simulated. Scenario {scenario}, seed {seed}, "
            f"fault after {onset_seconds:g} s."
        )
        yield Host(config, node.sources(config), node.driver_command, (note,))
    finally:
        node.stop()


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line; what it does not know is the exporter's."""
    width = max(map(len, SUMMARIES))
    lines = (f"  {name:<{width}}  {summary}\n" for name, summary in SUMMARIES.items())
    parser = argparse.ArgumentParser(
        prog="python -m peerwatch_demo.exporter",
        description="Serves a simulated training node, to see every metric without hardware.",
        epilog=f"scenarios:\n{''.join(lines)}\n{_EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "scenario", choices=SUMMARIES, metavar="SCENARIO", help="what happens; see below"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="equal seeds, equal nodes (0)"
    )
    parser.add_argument(
        "--onset",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="seconds from the start until the fault begins (60)",
    )
    return parser


def _seconds(text: str) -> float:
    """Return a number of seconds that a clock can reach."""
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{value:g} is no number of seconds such as 60")
    return value


if __name__ == "__main__":
    sys.exit(main())
