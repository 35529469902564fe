"""Writes tiny case folders in the format of the backtest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from detector.fakes import healthy, node_names


def write_case(
    folder: Path,
    *,
    nodes: int = 4,
    seconds: int = 200,
    truth: dict[str, Any] | None = None,
    arrays: dict[str, np.ndarray] | None = None,
    **changes: Any,
) -> Path:
    """Write a case with cpu_usage in percent and gpu_duty_cycle in percent per GPU."""
    folder.mkdir(parents=True)
    node_time, gpu_time = ["node", "time"], ["node", "gpu", "time"]
    level = healthy(nodes, seconds) * 100
    values = {
        "cpu_usage": level,
        "gpu_duty_cycle": np.stack([level, level - 5], axis=1),
        "unheard_of": level,
    } | (arrays or {})
    meta = {
        "name": folder.name,
        "job_id": "job-1",
        "step_seconds": 1.0,
        "seconds": seconds,
        "nodes": list(node_names(nodes)),
        "gpus_per_node": 2,
        "metrics": {
            name: {"unit": "percent", "axes": gpu_time if value.ndim == 3 else node_time}
            for name, value in values.items()
        },
    }
    if truth is not None:
        meta["truth"] = truth
    (folder / "case.json").write_text(json.dumps(meta | changes))
    np.savez(folder / "samples.npz", **{k: v.astype(np.float32) for k, v in values.items()})
    return folder
