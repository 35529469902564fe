"""The exporter's driver process over a fake NVML that answers from a directory's nvml.json."""

from __future__ import annotations

import sys
from pathlib import Path

from peerwatch_demo.simulated_node.nvml_library import FakeNvml, install
from peerwatch_exporter.driver import __main__ as driver


def main() -> int:
    """Serve the exporter that started this process; return the exit status."""
    directory = Path(sys.argv.pop(1))
    with install(FakeNvml.from_file(directory / "nvml.json")):
        return driver.main()


if __name__ == "__main__":
    sys.exit(main())
