"""Runs the real exporter on a `HostTree`, with driver statistics and GPUs that are made up.

Only what needs hardware is replaced: the ioctl of network drivers, and NVML in the driver process.

    python -m bench.exporter_node DIRECTORY EXPORTER_CONFIG
"""

from __future__ import annotations

import contextlib
import copy
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.prepared_statistics import NICS, PreparedStatistics
from peerwatch_exporter import __main__ as exporter
from peerwatch_exporter.process.assembly import Host
from peerwatch_exporter.sources import real_sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.host_tree import HostTree

    # Loading it would load pydantic, which the exporter itself does not.
    from peerwatch_exporter.settings.config import ExporterConfig

HERE = Path(__file__).parent
_FIXTURE = HERE.parent / "exporter" / "fixtures" / "h100_node" / "nvml.json"


def write_gpus(tree: HostTree) -> None:
    """Write what the fake NVML answers: H100s at the addresses of the tree's GPUs."""
    scenario = json.loads(_FIXTURE.read_text())
    model = scenario["gpus"][0]
    scenario["gpus"] = []
    for number in range(tree.gpus):
        gpu = copy.deepcopy(model)
        gpu["uuid"] = f"GPU-00000000-0000-4000-8000-{number:012x}"
        gpu["pci_bus_id"] = f"0000{tree.gpu_address(number)}".upper()
        scenario["gpus"].append(gpu)
    (tree.root / "nvml.json").write_text(json.dumps(scenario))


def run(directory: Path, config: str) -> int:
    """Run the exporter's command line on the files of a directory; return its exit status."""
    ethtool = PreparedStatistics(NICS)

    @contextlib.contextmanager
    def host(settings: ExporterConfig) -> Iterator[Host]:
        command = (sys.executable, str(HERE / "exporter_driver.py"), str(directory))
        yield Host(settings, replace(real_sources(settings), ethtool=ethtool), command)

    return exporter.main(["--config", config, "--log-level", "warning"], host)


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2]))
