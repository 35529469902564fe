"""The exporter on a node of 8 GPUs and 8 NICs, beside node_exporter on the same node."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.exporter import measure
from bench.measurement import Goal, Measurement, alone

_PEER = "node_exporter"


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Yield CPU, memory and the time of an answer; both programs are scraped at the same time."""
    with tempfile.TemporaryDirectory(prefix="peerwatch-bench-") as directory:
        rows, rendering = measure(Path(directory), round(options.seconds))
    ours, theirs = rows[0], rows[-1]
    what = f"exporter, {ours.series:,} series a second"
    yield Measurement(
        what,
        "ms CPU per s",
        ours.cpu_per_second * 1e3,
        theirs.cpu_per_second * 1e3,
        f"{_PEER}, {theirs.series:,} series",
        goals=(Goal(10), Goal(0.65, "ratio")),
    )
    yield Measurement(
        f"{what}: resident",
        "MiB RSS",
        ours.resident / 2**20,
        theirs.resident / 2**20,
        _PEER,
        goals=(Goal(45),),
    )
    yield Measurement(
        "exporter, answer to a scrape, median",
        "ms",
        ours.scrape_p50 * 1e3,
        theirs.scrape_p50 * 1e3,
        _PEER,
    )
    yield Measurement(
        f"exporter, rendering {rendering.series:,} series that all changed",
        "ms CPU",
        rendering.ours * 1e3,
        rendering.prometheus_client * 1e3,
        "prometheus_client",
    )


if __name__ == "__main__":
    alone(measurements)
