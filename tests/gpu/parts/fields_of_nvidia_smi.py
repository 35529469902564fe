"""The exporter's exposition against nvidia-smi, field by field."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from gpu.part import PATIENCE_SECONDS, PartFailedError, PartSkippedError, Result, agreeing
from gpu.parts.fields_of_nvml import value

if TYPE_CHECKING:
    from gpu.part import Node

# Field of nvidia-smi, metric, labels, factor, and by what part the two may differ.
FIELDS = (
    ("memory.total", "gpu_memory_total_bytes", {}, 1024.0 * 1024.0, 0.001),
    ("power.limit", "gpu_power_limit_watts", {}, 1.0, 0.001),
    ("power.draw", "gpu_power_watts", {}, 1.0, 0.5),
    ("temperature.gpu", "gpu_temperature_celsius", {"sensor": "core"}, 1.0, 0.2),
    ("clocks.max.sm", "gpu_clock_max_hertz", {"domain": "sm"}, 1e6, 0.0),
    ("clocks.max.memory", "gpu_clock_max_hertz", {"domain": "memory"}, 1e6, 0.0),
)


def run(node: Node) -> Result:
    """Compare every field of every GPU."""
    if node.simulated:
        raise PartSkippedError("nvidia-smi knows nothing of a simulated driver")
    if shutil.which("nvidia-smi") is None:
        raise PartSkippedError("nvidia-smi is not on PATH")
    query = ",".join(("index", *(field for field, *_ in FIELDS)))
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    return agreeing(lambda: _compare(command, node))


def _compare(command: list[str], node: Node) -> Result:
    samples = node.exporter.samples()
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    if ended.returncode:
        raise PartFailedError(f"{command} ended with {ended.returncode}: {ended.stderr.strip()}")
    return compared(ended.stdout, samples)


def compared(text: str, samples: list) -> Result:  # type: ignore[type-arg]
    """Return how the lines of nvidia-smi and the exposition differ."""
    result = Result("The exporter against nvidia-smi")
    rows = []
    for line in filter(None, text.splitlines()):
        index, *words = [word.strip() for word in line.split(",")]
        for (field, name, labels, factor, tolerance), word in zip(FIELDS, words, strict=True):
            try:
                expected = float(word) * factor
            except ValueError:  # such as [N/A]
                rows.append((index, field, name, "-", word, "not compared"))
                continue
            published = value(samples, name, int(index), labels)
            good = published is not None and (
                abs(published - expected) <= tolerance * max(abs(expected), 1.0)
            )
            said = "none" if published is None else f"{published:g}"
            rows.append(
                (index, field, name, said, f"{expected:g}", "same" if good else "**differs**")
            )
            if not good:
                result.failures.append(
                    f"{name} of GPU {index} is {said}, but nvidia-smi's {field} is {expected:g}."
                )
    result.table(("GPU", "nvidia-smi", "metric", "exposition", "nvidia-smi", ""), rows)
    return result
