"""What the sampler costs, on a real file tree of 8 RDMA ports whose counters move all the while.

python -m bench.sampler [SECONDS] [DIRECTORY]

The files stand for those of sysfs, so the table has what the program costs and not what a NIC's
driver adds: `sampler_cpu_ratio` shows that on a node.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.processes import usage
from peerwatch_exporter.collectors.sampler import SamplerCollector
from peerwatch_exporter.settings.config import ExporterConfig
from sampler_node import COUNTERS, LINE_RATE, Tree, sampler_on, until

_PORTS = 8
_INTERVALS = (0.001, 0.010, 0.100)
# Packets stand in for pause frames, which plain files do not have: 6 counters of each port.
_SAMPLED = (*COUNTERS, "transmit_packets")
_REPEATS = 200
_START = 10**15


@contextlib.contextmanager
def _moving(tree: Tree) -> Iterator[None]:
    """Raise all byte counters every millisecond, at about half the line rate."""
    stop = threading.Event()
    files = [
        tree.counter(name, f"mlx5_{number}")
        for number in range(_PORTS)
        for name in ("port_xmit_data", "port_rcv_data")
    ]

    def write() -> None:
        descriptors = [os.open(file, os.O_WRONLY) for file in files]
        start = time.monotonic()
        while not stop.wait(0.001):
            words = int((time.monotonic() - start) * LINE_RATE / 8)
            for descriptor in descriptors:
                os.pwrite(descriptor, b"%d\n" % (_START + words), 0)
        for descriptor in descriptors:
            os.close(descriptor)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def measure(root: Path, interval: float, seconds: float) -> str:
    """Return the row of one interval."""
    changes = {"max_cpu_ratio": 1.0, "counters": _SAMPLED, "window_seconds": 15}
    with sampler_on(root, interval_seconds=interval, history_seconds=15.0, **changes) as sampler:
        until(lambda: (second := sampler.state().second) and second["samples"] * interval > 2)
        process = sampler._process
        assert process is not None
        first, before = sampler.state().second, usage(process.pid)
        begin = time.monotonic()
        time.sleep(seconds)
        after, last = usage(process.pid), sampler.state().second
        lasted = time.monotonic() - begin
        assert first is not None
        assert last is not None
        taken = last["samples"] - first["samples"]
        late = (last["late"] - first["late"]) / taken
        cpu = after.cpu_since(before) / lasted
        memory = sampler.state().layout.size / 2**20
        main = _main_share(SamplerCollector(ExporterConfig(), sampler.sources), last)
    return (
        f"| {interval * 1e3:g} ms | {last['interval'] * 1e3:.2f} ms | {late:.2%} | {cpu:.2%} "
        f"| {after.rss_bytes / 2**20:.1f} MiB | {memory:.1f} MiB | {main * 1e3:.2f} ms |"
    )


def _main_share(collector: SamplerCollector, message: object) -> float:
    """Return the CPU seconds that the main process spends on the sampler, each second."""
    line = json.dumps(message)
    start = time.thread_time()
    for _ in range(_REPEATS):
        json.loads(line)
        for _family in collector.collect():
            pass
    return (time.thread_time() - start) / _REPEATS


def main() -> None:
    """Print the table."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as directory:
        tree = Tree(Path(directory), devices=_PORTS)
        print("| interval | achieved | late | CPU of one core | resident | of it rings | main |")
        print("|---|---|---|---|---|---|---|")
        with _moving(tree):
            for interval in _INTERVALS:
                print(measure(Path(directory), interval, seconds), flush=True)


if __name__ == "__main__":
    main()
