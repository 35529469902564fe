"""Which of 1,024 ranks a job waits for, beside torch's own analysis of Flight Recorder dumps.

Ours begins with the series that the exporters publish all the time, as they come from Prometheus;
torch's with the files that the ranks dump once the watchdog has ended the job. Its imports do not
count. Both know the same collectives of the same ranks.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

from torch.distributed.flight_recorder import fr_trace

from bench.flight_dumps import samples_of, write_dumps
from bench.measurement import Measurement, alone, cpu_in_turns, cpu_seconds
from detector.diagnosis.training_layout import Job, Layout, standing
from peerwatch_detector.diagnosis.collectives.hang.hang import hangs
from peerwatch_detector.diagnosis.collectives.series import read

_CULPRIT = 517
_NOW = 1_700_000_000.0
# Data parallelism for 128, 512 and 1,536 nodes of 8 GPUs.
_LARGE = (128, 384)


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Yield the CPU time of a verdict."""
    for parallel in (32, *(_LARGE if options.large else ())):
        layout = Layout(8, 4, parallel, 8)
        job = Job(layout, Random(1))
        state, _ = standing(job, "hung", _CULPRIT, 3, 20, starts=True)
        samples = samples_of(state, layout.ranks, _NOW)

        def ours(samples: object = samples) -> None:
            reading = read(samples, _NOW)
            assert reading is not None
            (root,) = hangs(reading.snapshot)
            if root.ranks != (_CULPRIT,):
                raise RuntimeError(f"ranks {root.ranks} were named")

        nodes = layout.ranks // 8
        if parallel != 32:
            yield Measurement(_what(), "s CPU", cpu_seconds(ours, 3), nodes=nodes)
            continue
        with tempfile.TemporaryDirectory() as name:
            write_dumps(job, state, Path(name))

            def theirs(folder: str = name) -> None:
                with contextlib.redirect_stdout(io.StringIO()):
                    fr_trace.main([folder, "--prefix", "rank_"])

            def floor(samples: dict[str, list[object]] = samples) -> None:
                for each in samples.values():
                    for series in each:
                        series.labels.get("rank"), float(series.values[-1])

            os.environ.pop("FR_TRACE_VERBOSE_OUTPUT", None)
            (first, floor_seconds), second = (
                cpu_in_turns((ours, floor), 5),
                cpu_seconds(theirs, 1),
            )
        yield Measurement(
            _what(),
            "s CPU",
            *(first, second, "torch's fr_trace over the dumps"),
            *(floor_seconds, "touching every series"),
            nodes=nodes,
        )


def _what() -> str:
    return "detector, hang verdict over 8 ranks a node"


if __name__ == "__main__":
    alone(measurements)
