"""A case with a fault, and settings with which it is replayed quickly."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from detector.fakes import ONSET, shifted
from detector.small_case import write_case
from peerwatch_detector.config import Method

METHODS = get_args(Method)


# Deviations short enough for cases of minutes.
QUICK = {"continuity.threshold_seconds": 60, "zscore.period_seconds": 60}


QUICK_YAML = "continuity: {threshold_seconds: 60}\nzscore: {period_seconds: 60}\n"


FAULT = {"fault": "slow_nic", "nodes": ["node-02"], "onset_seconds": ONSET, "halt_seconds": None}


def faulty_case(folder: Path, **changes: object) -> Path:
    """A node whose CPU usage falls by 30 percent of the whole at ``ONSET``."""
    level = shifted(8, 600, {2: -0.3}) * 100
    settings = {"truth": FAULT, "arrays": {"cpu_usage": level}} | changes
    return write_case(folder, nodes=8, seconds=600, **settings)
