"""Runs the real exporter over fake drivers that follow files in a node's directory.

GPUs follow ``nvml.json``, network drivers ``ethtool.json``. The driver process is this file too:
it puts the fake library in place and then does what the real one does.

python simulated_node.py DIRECTORY EXPORTER_CONFIG
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from fake_ethtool import FileEthtool
from peerwatch_demo.simulated_node.nvml_library import FakeNvml, put_in_place
from peerwatch_exporter import __main__ as exporter
from peerwatch_exporter.driver.serve import options_of, serve
from peerwatch_exporter.process.assembly import Host
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import real_sources


def run(directory: Path, config: str) -> int:
    """Run the exporter's command line on the files of a directory; return its exit status."""

    @contextlib.contextmanager
    def host(settings: ExporterConfig) -> Iterator[Host]:
        sources = replace(real_sources(settings), ethtool=FileEthtool(directory / "ethtool.json"))
        command = (sys.executable, __file__, "driver", str(directory / "nvml.json"))
        yield Host(settings, sources, command)

    return exporter.main(["--config", config], host)


def run_driver(arguments: list[str]) -> int:
    """Be the driver process on the fake library; return the exit status."""
    scenario, *options = arguments
    put_in_place(FakeNvml.from_file(Path(scenario)))
    return serve(options_of(options))


if __name__ == "__main__":
    first, *rest = sys.argv[1:]
    start = partial(run_driver, rest) if first == "driver" else partial(run, Path(first), rest[0])
    sys.exit(start())
