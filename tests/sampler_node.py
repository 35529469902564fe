"""A node for the sampler: a real file tree of RDMA ports, and a real sampler process on it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from peerwatch_exporter.sampler.process import Sampler
from peerwatch_exporter.sampler.settings import SamplerSettings
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths

COUNTERS = ("transmit_bytes", "receive_bytes", "cnp_sent", "cnp_handled", "ecn_marked_packets")
# 400 Gb/s in bytes.
LINE_RATE = 50e9
_START = 10**15
_GENEROUS_SECONDS = 120.0
_Found = TypeVar("_Found")
_FILES = {
    "counters": ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets"),
    "hw_counters": ("np_cnp_sent", "rp_cnp_handled", "np_ecn_marked_roce_packets"),
}


class Tree:
    """RDMA devices below a directory, with counters that can be raised in place.

    Parameters
    ----------
    root
        The directory; sysfs is mounted there.
    devices
        How many there are, each with one port.
    """

    def __init__(self, root: Path, devices: int = 1) -> None:
        self.root = root
        for number in range(devices):
            self.add(f"mlx5_{number}")

    def add(self, device: str) -> None:
        """Plug in a device."""
        port = self.port(device)
        for directory, names in _FILES.items():
            (port / directory).mkdir(parents=True)
            for name in names:
                (port / directory / name).write_text(f"{_START}\n")
        (port / "hw_counters" / "lifespan").write_text("10\n")
        (port / "rate").write_text("400 Gb/sec (4X NDR)\n")

    def port(self, device: str) -> Path:
        """Return the directory of a device's port."""
        return self.root / "class" / "infiniband" / device / "ports" / "1"

    def set(self, path: Path, value: int | str) -> None:
        """Let a counter's file say something; the file stays the same one, as in sysfs."""
        with path.open("r+") as file:
            file.write(f"{value}\n")
            file.truncate()

    def counter(self, name: str, device: str = "mlx5_0") -> Path:
        """Return a counter's file, below ``counters`` or ``hw_counters``."""
        directory = next(key for key, names in _FILES.items() if name in names)
        return self.port(device) / directory / name

    @contextlib.contextmanager
    def rising(self, name: str, amount: Callable[[float], float]) -> Iterator[None]:
        """Raise a counter of ``mlx5_0`` all the while: ``amount`` by seconds since the start."""
        stop = threading.Event()
        path = self.counter(name)
        start = time.monotonic()

        def write() -> None:
            descriptor = os.open(path, os.O_WRONLY)
            try:
                while not stop.wait(0.0002):
                    # As many digits each time: a reader never sees half of two values.
                    value = _START + int(amount(time.monotonic() - start))
                    os.pwrite(descriptor, b"%d\n" % value, 0)
            finally:
                os.close(descriptor)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def sources_of(root: Path) -> Sources:
    """Return the sources of a node with this sysfs and real clocks."""
    return Sources(Paths(procfs=Path("/proc"), sysfs=root, kmsg=root / "kmsg"))


def settings_of(root: Path, **changes: object) -> SamplerSettings:
    """Return settings for tests: 5 ms, a window of 2 s, no limit on cost that would matter."""
    values: dict[str, object] = {
        "interval_seconds": 0.005,
        "window_seconds": 2,
        "history_seconds": 10.0,
        "max_cpu_ratio": 1.0,
        "counters": COUNTERS,
        "retry_seconds": 0.3,
    }
    return SamplerSettings(sysfs=str(root), **{**values, **changes})


@contextlib.contextmanager
def sampler_on(root: Path, **changes: object) -> Iterator[Sampler]:
    """Run a sampler process on a tree."""
    sampler = Sampler(ExporterConfig(), sources_of(root), settings=settings_of(root, **changes))
    sampler.start()
    try:
        yield sampler
    finally:
        sampler.stop()


def until(condition: Callable[[], _Found]) -> _Found:
    """Wait until something is so, and return it; a machine may be slow, but not that slow."""
    end = time.monotonic() + _GENEROUS_SECONDS
    while not (found := condition()):
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)
    return found
