"""Runs the real exporter over fake drivers that follow files in a node's directory.

GPUs follow ``nvml.json``, network drivers ``ethtool.json``. The driver process is this file too:
it puts the fake library in place and then does what the real one does.

python simulated_node.py DIRECTORY EXPORTER_CONFIG
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from fake_ethtool import FileEthtool
from peerwatch_exporter import __main__ as exporter
from peerwatch_exporter.demo.nvml_library import FakeNvml, put_in_place
from peerwatch_exporter.driver.manager import Driver
from peerwatch_exporter.driver.serve import options_of, serve
from peerwatch_exporter.process import assembly
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import Sources, real_sources


def run(directory: Path, config: str) -> int:
    """Run the exporter's command line on the files of a directory; return its exit status."""

    def simulated_sources(settings: ExporterConfig) -> Sources:
        return replace(real_sources(settings), ethtool=FileEthtool(directory / "ethtool.json"))

    def simulated_driver(settings: ExporterConfig, sources: Sources, *_: object) -> Driver:
        command = [sys.executable, __file__, "driver", str(directory / "nvml.json")]
        return Driver(settings, sources, command=command)

    assembly.real_sources = simulated_sources
    assembly._driver = simulated_driver
    return exporter.main(["--config", config])


def run_driver(arguments: list[str]) -> int:
    """Be the driver process on the fake library; return the exit status."""
    scenario, *options = arguments
    put_in_place(FakeNvml.from_file(Path(scenario)))
    return serve(options_of(options))


if __name__ == "__main__":
    first, *rest = sys.argv[1:]
    start = partial(run_driver, rest) if first == "driver" else partial(run, Path(first), rest[0])
    sys.exit(start())
