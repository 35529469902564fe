"""Turns the iteration times of real training jobs into cases of one metric, at 10 s steps.

    python tests/detector/mini_batch.py JOB.csv FOLDER

reads a table of Alibaba's cluster-trace-gpu-v2020/mini-batch-time (columns worker, time in
seconds, batch_time_norm 0 to 1000; one row per worker and 10 s). ``SETTINGS`` is what a detector
needs in its configuration to look at the metric.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np

from peerwatch_detector.backtest.cases import Case, Truth, save_case
from peerwatch_detector.frame import JobFrame

STEP_SECONDS = 10.0
METRIC, UNIT = "mini_batch_time", "thousandths"
# No worker of these jobs is labelled faulty: what is expected stands in the tests.
SETTINGS: dict[str, Any] = {
    "metrics": {
        "enabled": [METRIC],
        "extra": [
            {
                "name": METRIC,
                "unit": UNIT,
                "recorded": f"job_node:{METRIC}:norm",
                "expression": f"{METRIC}{{ {{{{- job -}}}} }}",
                "bounds": [0, 1000],
                # A tenth of what an iteration usually takes.
                "min_effect_size": 80,
                "direction": "high",
            }
        ],
    }
}


def read_table(path: Path) -> np.ndarray:
    """Return the iteration times, shape (workers, steps); NaN where a worker told nothing.

    The steps end with the first worker that ends: from there on the job is being taken down.
    """
    rows = [
        (int(row["worker"]), round((float(row["time"]) - 1) / STEP_SECONDS), row["batch_time_norm"])
        for row in csv.DictReader(path.read_text().splitlines())
    ]
    workers = max(row[0] for row in rows) + 1
    ends = [max(step for worker, step, _ in rows if worker == rank) for rank in range(workers)]
    values = np.full((workers, min(ends) + 1), np.nan, dtype=np.float32)
    for worker, step, value in rows:
        if step < values.shape[1] and np.isnan(values[worker, step]):
            values[worker, step] = float(value)
    return values


def to_case(name: str, values: np.ndarray, truth: Truth | None) -> Case:
    """Wrap iteration times, shape (workers, steps), into a case."""
    nodes = tuple(f"worker-{index}" for index in range(len(values)))
    times = np.arange(values.shape[1]) * STEP_SECONDS
    frame = JobFrame(name, METRIC, nodes, times, values)
    return Case(name, name, STEP_SECONDS, {METRIC: frame}, truth, {METRIC: UNIT})


if __name__ == "__main__":
    table, folder = (Path(argument) for argument in sys.argv[1:])
    save_case(to_case(folder.name, read_table(table), None), folder)
