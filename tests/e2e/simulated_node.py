"""Runs the real exporter over fake drivers that follow files in a node's directory.

GPUs follow ``nvml.json``, network drivers ``ethtool.json``.

python simulated_node.py DIRECTORY EXPORTER_CONFIG
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from fake_ethtool import FileEthtool
from fake_nvml import FakeNvml, install
from peerwatch_exporter import __main__ as exporter
from peerwatch_exporter.config import ExporterConfig
from peerwatch_exporter.sources import Sources, real_sources


def run(directory: Path, config: str) -> int:
    """Run the exporter's command line on the files of a directory; return its exit status."""

    def simulated_sources(settings: ExporterConfig) -> Sources:
        return replace(real_sources(settings), ethtool=FileEthtool(directory / "ethtool.json"))

    exporter.real_sources = simulated_sources
    with install(FakeNvml.from_file(directory / "nvml.json")):
        return exporter.main(["--config", config])


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2]))
