"""What a node is made of, by its files: only values of the same hardware are compared."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from peerwatch_common.arm_cpus import arm_cpus
from peerwatch_common.check_results.record import MAX_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from peerwatch_common.check_results.record import Record


def hardware_of(procfs: Path) -> dict[str, str]:
    """Return the models of the node's GPUs and CPUs, under ``gpu`` and ``cpu`` where known."""
    models: set[str] = set()
    with contextlib.suppress(OSError):
        for gpu in (procfs / "driver" / "nvidia" / "gpus").iterdir():
            models.update(_values(_text(gpu / "information"), "Model"))
    cpuinfo = _text(procfs / "cpuinfo")
    cpus = _values(cpuinfo, "model name")[:1] or arm_cpus(cpuinfo)
    found = {"gpu": " + ".join(sorted(models)), "cpu": " + ".join(cpus)}
    return {name: model[:MAX_NAME] for name, model in found.items() if model}


def comparable(
    records: Iterable[Record], hardware: Mapping[str, str]
) -> dict[str, tuple[float, ...]]:
    """Return what records of nodes of this hardware measured, by device, in their order."""
    found: dict[str, tuple[float, ...]] = {}
    for record in records:
        same = all(record.versions.get(name) == hardware.get(name) for name in ("gpu", "cpu"))
        if same and record.value is not None:
            found[record.device] = (*found.get(record.device, ()), record.value)
    return found


def _values(text: str, name: str) -> list[str]:
    """Return the values of the lines ``name : value`` of a text."""
    pairs = (line.partition(":") for line in text.splitlines())
    return [value.strip() for key, _, value in pairs if key.strip() == name]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
