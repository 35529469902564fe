"""What tests do to the driver's processes, and how they wait for what follows."""

from __future__ import annotations

import time
from pathlib import Path

from driver_node import PATIENCE

UTILIZATION = "gpu_utilization_ratio"


def hang(scenario, *gpus):
    """Let the fast values of some GPUs never come."""
    for gpu in gpus:
        scenario["gpus"][gpu]["delays"] = {"nvmlDeviceGetUtilizationRates": 3600}


def recover(scenario, *gpus):
    for gpu in gpus:
        scenario["gpus"][gpu].pop("delays", None)
        scenario["gpus"][gpu].pop("crash", None)


def well(reports):
    return all(report.success and report.families for report in reports.values())


def in_time(reports):
    return all(report.error is None for report in reports.values())


def wait_for(holds):
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
