"""The sampler process: ``python -m peerwatch_exporter.sampler SETTINGS DESCRIPTOR``.

Started by the exporter's main process, which reads its standard output: one JSON line at the
start with the layout of the memory, then one per second. It ends when nobody reads them.
"""

from __future__ import annotations

import contextlib
import gc
import json
import mmap
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from peerwatch_exporter.sampler.groups import groups_of, readers_of, sampled_ports
from peerwatch_exporter.sampler.interval_controller import IntervalController
from peerwatch_exporter.sampler.layout import MemoryLimitError, lay_out
from peerwatch_exporter.sampler.loop import PortsChangedError, SamplerLoop
from peerwatch_exporter.sampler.settings import SamplerSettings
from peerwatch_exporter.sources.host.sysfs import Sysfs
from peerwatch_exporter.sources.nic.ethtool import EthtoolIoctl
from peerwatch_exporter.sources.nic.rdma import RdmaPorts

# The training job comes first: under CFS a third of its weight.
_NICE = 5
_EXIT_REFUSED, _EXIT_PORTS_CHANGED = 3, 4


def main() -> int:
    """Sample until the main process is gone, the ports change, or a signal comes."""
    settings, descriptor = SamplerSettings.from_json(sys.argv[1]), int(sys.argv[2])
    # Ctrl-C goes to every process of the terminal; the main process ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A sandbox may forbid it; sampling has its own limit of CPU time anyway.
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    try:
        return _run(settings, descriptor)
    except BrokenPipeError:
        return 0
    except PortsChangedError:
        return _EXIT_PORTS_CHANGED


def _run(settings: SamplerSettings, descriptor: int) -> int:
    sysfs = Sysfs(Path(settings.sysfs))
    listed = RdmaPorts(sysfs, settings.exclude_devices, time.monotonic)
    ports = sampled_ports(listed, settings.devices)
    groups = list(groups_of(sysfs, ports, settings))
    try:
        layout = lay_out(groups, settings.history_seconds, settings.window_seconds)
    except MemoryLimitError as error:
        _send({"refused": str(error)})
        return _EXIT_REFUSED
    size = max(layout.size, mmap.PAGESIZE)
    os.ftruncate(descriptor, size)
    memory = memoryview(mmap.mmap(descriptor, size))
    readers = readers_of(layout.groups, ports, sysfs, EthtoolIoctl(), settings)
    controller = IntervalController(
        settings.interval_seconds,
        settings.max_cpu_ratio,
        time.monotonic_ns,
        time.sleep,
        time.process_time,
    )
    loop = SamplerLoop(settings, sysfs, listed, layout, readers, memory, controller, _send)
    # What exists now stays; the collector need not check it again.
    gc.freeze()
    while True:
        loop.tick()


def _send(message: dict[str, Any]) -> None:
    line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    while line:
        line = line[os.write(sys.stdout.fileno(), line) :]


if __name__ == "__main__":
    sys.exit(main())
