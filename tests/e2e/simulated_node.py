"""Runs the real exporter over a fake driver that follows ``nvml.json`` in a node's directory.

python simulated_node.py DIRECTORY EXPORTER_CONFIG
"""

from __future__ import annotations

import sys
from pathlib import Path

from fake_nvml import FakeNvml, install
from peerwatch_exporter.__main__ import main

if __name__ == "__main__":
    directory, config = sys.argv[1:]
    with install(FakeNvml.from_file(Path(directory) / "nvml.json")):
        sys.exit(main(["--config", config]))
