"""The driver process over a simulated node: the exporter starts it in place of its own.

Beside what the exporter's driver process is given it takes ``--scenario NAME --seed N
--start UNIXTIME --onset SECONDS``.
"""

from __future__ import annotations

import sys

from peerwatch_demo.simulated_node.nvml import SimulatedNvml
from peerwatch_demo.simulated_node.nvml_library import put_in_place
from peerwatch_demo.simulated_node.scenarios import SCENARIOS
from peerwatch_exporter.driver.serve import options_of, serve


def main() -> int:
    """Run the command line; return the exit status."""
    options = options_of(sys.argv[1:])
    seed, start, onset = int(options["seed"]), float(options["start"]), float(options["onset"])
    put_in_place(SimulatedNvml(SCENARIOS[options["scenario"]], seed, start, onset))
    return serve(options)


if __name__ == "__main__":
    sys.exit(main())
