"""How long after its start the exporter's exposition has everything, beside node_exporter.

On the node of ``bench.exporter``: an exposition is complete once all GPUs are in it and no
collector failed. node_exporter reads when it is scraped, so its first answer is complete.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.exporter import complain_if_incomplete, start_exporter, start_node_exporter
from bench.exporter_node import write_gpus
from bench.host_tree import HostTree
from bench.measurement import Goal, Measurement, alone
from peerwatch_demo.stack.servers import Process, Stack, free_ports

_STARTS = 5
_PAUSE_SECONDS = 0.02
_PATIENCE_SECONDS = 60.0


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Yield the median seconds of some starts, one after the other."""
    with tempfile.TemporaryDirectory(prefix="peerwatch-bench-") as name:
        tree = HostTree(Path(name) / "node").build()
        write_gpus(tree)
        (tree.root / "kmsg").write_text("")
        ours, theirs = [], []
        for number in range(_STARTS):
            folder = Path(name) / str(number)
            folder.mkdir()
            with Stack(folder) as stack:
                ours.append(_ours(stack, tree))
                theirs.append(_theirs(stack, tree))
    middle = _STARTS // 2
    yield Measurement(
        "exporter, start to the first complete exposition",
        "s",
        sorted(ours)[middle],
        sorted(theirs)[middle],
        "node_exporter",
        goals=(Goal(2),),
    )


def _ours(stack: Stack, tree: HostTree) -> float:
    (port,) = free_ports(1)
    return _seconds(
        lambda: start_exporter(stack, tree, port, {}, ready=False),
        port,
        lambda exposition: complain_if_incomplete(exposition, tree.gpus),
    )


def _theirs(stack: Stack, tree: HostTree) -> float:
    (port,) = free_ports(1)
    return _seconds(lambda: start_node_exporter(stack, tree, port, ready=False), port)


def _seconds(
    start: Callable[[], Process], port: int, check: Callable[[str], None] | None = None
) -> float:
    began = time.perf_counter()
    start()
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                exposition = answer.read().decode()
            if check is not None:
                check(exposition)
        except (OSError, RuntimeError) as error:
            if time.perf_counter() - began > _PATIENCE_SECONDS:
                raise RuntimeError(
                    f"no complete exposition after {_PATIENCE_SECONDS:g} s"
                ) from error
            time.sleep(_PAUSE_SECONDS)
        else:
            return time.perf_counter() - began


if __name__ == "__main__":
    alone(measurements)
