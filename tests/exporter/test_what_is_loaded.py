"""What the exporter's processes load: each only what it uses, since every MiB is on every node."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

import pytest

_MAIN = """
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.process import service
registrations()
"""
_DRIVER = """
import importlib
from peerwatch_exporter.driver import serve
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths
from pathlib import Path
for name in ("gpu", "gpm", "gpu_pcie", "gpu_settings", "gpu_use", "nvlink", "nvlink_errors"):
    importlib.import_module("peerwatch_exporter.collectors." + name)
Sources(Paths(Path("/proc"), Path("/sys"), Path("/dev/kmsg")))
"""


@functools.cache
def loaded(program: str) -> frozenset[str]:
    """Return the modules that a process has after a program."""
    code = f"{program}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return frozenset(json.loads(done.stdout))


@pytest.mark.parametrize(
    "unused",
    [
        "pydantic",
        "pynvml",
        "ssl",
        "hashlib",
        "peerwatch_exporter.sources.collectives.recorders",
        "peerwatch_exporter.sources.gpu.nvlink",
        "peerwatch_exporter.sources.gpu.nvml_settings",
        "peerwatch_exporter.sources.gpu.readings",
        "peerwatch_exporter.sources.logs.process",
        "peerwatch_exporter.sources.spans.ring",
        "peerwatch_exporter.sampler.process",
    ],
)
def test_the_main_process_loads_nothing_that_settings_ask_for_or_the_driver_process_does(
    unused: str,
) -> None:
    assert unused not in loaded(_MAIN)


@pytest.mark.parametrize(
    "unused",
    [
        "pydantic",
        "argparse",
        "ssl",
        "peerwatch_exporter.sources.host.connections",
        "peerwatch_exporter.sources.host.dbus_call",
        "peerwatch_exporter.sources.host.filesystems",
        "peerwatch_exporter.sources.host.procfs",
        "peerwatch_exporter.sources.host.processes",
        "peerwatch_exporter.sources.jobs.heartbeat",
        "peerwatch_exporter.sources.nic.dcb",
    ],
)
def test_the_driver_process_loads_nothing_that_only_the_main_process_reads(unused: str) -> None:
    assert unused not in loaded(_DRIVER)
