"""Whether a node has what a check needs; only files are looked at, no driver is called."""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from peerwatch_checks.check import Check, Need

# A prolog has no PATH.
_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Node:
    """What decides whether a check can run.

    Parameters
    ----------
    procfs, sysfs
        The node's file systems.
    gpus
        The GPUs that may be used; None: all.
    environment
        Variables of this process.
    """

    procfs: Path
    sysfs: Path
    gpus: tuple[int, ...] | None
    environment: Mapping[str, str]


def missing(check: Check, node: Node) -> str:
    """Return why a check cannot run on a node, a sentence; empty: it can."""
    return next(filter(None, (_REASONS[need](node) for need in check.needs)), "")


def has_peers(environment: Mapping[str, str]) -> bool:
    """Whether several processes were started together, by torchrun or by srun."""
    counts = (environment.get(name, "") for name in ("WORLD_SIZE", "SLURM_NTASKS"))
    return any(count.isdecimal() and int(count) > 1 for count in counts)


def program(name: str, environment: Mapping[str, str]) -> str | None:
    """Return the path of a program, also where PATH is empty."""
    return shutil.which(name, path=environment.get("PATH") or _USUAL_PATH)


def _gpu(node: Node) -> str:
    if node.gpus == ():
        return "The job has no GPU."
    if not _entries(node.procfs / "driver" / "nvidia" / "gpus"):
        return f"There is no GPU of NVIDIA's driver below {node.procfs}/driver/nvidia/gpus."
    return ""


def _package(name: str) -> Callable[[Node], str]:
    def reason(_node: Node) -> str:
        found = importlib.util.find_spec(name) is not None
        return "" if found else f"{name} is not installed: pip install {name}."

    return reason


def _program(name: str, package: str) -> Callable[[Node], str]:
    def reason(node: Node) -> str:
        found = program(name, node.environment) is not None
        return "" if found else f"{name} is not on PATH: install {package}."

    return reason


def _root(_node: Node) -> str:
    return "" if os.geteuid() == 0 else "It needs root."


def _rdma(node: Node) -> str:
    folder = node.sysfs / "class" / "infiniband"
    return "" if _entries(folder) else f"There is no RDMA device below {folder}."


def _peers(node: Node) -> str:
    found = has_peers(node.environment)
    return "" if found else "It needs other nodes: start it with torchrun or srun."


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


_REASONS: dict[Need, Callable[[Node], str]] = {
    "gpu": _gpu,
    "torch": _package("torch"),
    "numpy": _package("numpy"),
    "root": _root,
    "perftest": _program("ib_write_bw", "perftest"),
    "dcgm": _program("dcgmi", "DCGM"),
    "rdma": _rdma,
    "peers": _peers,
}
