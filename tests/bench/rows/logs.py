"""Following a job's logs at up to 50 MB/s, beside grep over the same lines.

CPU per MB is what both cost at any rate; the share of a core at 50 MB/s is 50 times it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.logs import _job, measure, training_log
from bench.measurement import Measurement, alone, cpu_seconds, run_command
from bench.plain_log import GREP, grep

_RATE = 50_000_000


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Yield CPU per MB: the reading process and its share of the main process together."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        log.write_bytes(training_log(1))
        with _job(Path(directory), log, _RATE) as job:
            cost = measure(job, max(options.seconds, 20.0))
        if not cost.read:
            raise RuntimeError("nothing was read: measure for longer, with --seconds")
        if cost.skipped:
            raise RuntimeError(f"{cost.skipped / 1e6:.1f} MB/s were skipped: not all was read")
        plain = run_command(grep(Path(directory), log), (0, 1)).cpu / log.stat().st_size
        # More at once than the file has, so that the number is not the clock's.
        floor = cpu_seconds(lambda: [log.read_bytes() for _ in range(50)], 3)
        floor /= 50 * log.stat().st_size
    yield Measurement(
        "exporter, logs followed and searched, at most 50 MB/s",
        "ms CPU per MB",
        *((cost.reader + cost.main) / cost.read * 1e9, plain * 1e9, GREP),
        *(floor * 1e9, "reading the file"),
    )


if __name__ == "__main__":
    alone(measurements)
