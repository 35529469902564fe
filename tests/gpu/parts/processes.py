"""The processes that call NVML: one that is killed, and one that hangs, cost only themselves."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from gpu.part import Result, until

if TYPE_CHECKING:
    from gpu.part import Node

_RESTARTS = "exporter_nvml_restarts_total"


def run(node: Node) -> Result:
    """End a process with SIGKILL, then stop one with SIGSTOP; the GPUs must come back."""
    result = Result("Processes that call NVML")
    rows = [
        _tried(node, "killed (SIGKILL)", signal.SIGKILL),
        _tried(node, "hung (SIGSTOP)", signal.SIGSTOP),
    ]
    result.table(
        ("process", "new process after", "all GPUs back after", "restarts, by reason"), rows
    )
    return result


def _tried(node: Node, what: str, number: signal.Signals) -> tuple[str, str, str, str]:
    exporter = node.exporter
    before = exporter.value(_RESTARTS) or 0.0
    gpus = exporter.value("gpu_present")
    victim = until(exporter.children, "a process that calls NVML")[0]
    begun = time.monotonic()
    os.kill(victim, number)
    try:
        until(
            lambda: (
                any(pid != victim for pid in exporter.children())
                and (exporter.value(_RESTARTS) or 0.0) > before
            ),
            f"a new process in place of {victim}, which was {what}",
        )
        replaced = time.monotonic() - begun
        until(
            lambda: (
                exporter.value("gpu_present") == gpus
                and exporter.value("gpu_power_watts") is not None
            ),
            f"{gpus:g} GPUs on the page after the process was {what}",
        )
    finally:
        # What the exporter could not end must not outlive this run.
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGCONT)
    reasons = ", ".join(
        f"{labels['reason']} {value:g}"
        for name, labels, value in exporter.samples()
        if name == _RESTARTS and value
    )
    return what, f"{replaced:.1f} s", f"{time.monotonic() - begun:.1f} s", reasons
