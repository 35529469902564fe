"""The settings file of ``peerwatch-check``; every setting has a default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A frozen group of settings that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class BusyConfig(Section):
    """When a node is in use, so that checks which put load on it do not run."""

    gpu_memory_bytes: int = Field(
        default=15 * 1024**2,
        ge=0,
        description="Memory in use on a GPU that is not idle, besides what the driver keeps.",
    )
    cpu_ratio: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Share of the node's CPU time in use from which it is busy; 1: never.",
    )
    slurm: bool = Field(default=True, description="Whether steps of other Slurm jobs count.")
    kubernetes: bool = Field(default=True, description="Whether other pods that have a GPU count.")


class PathsConfig(Section):
    """Where the node is seen; other than the defaults in a container."""

    procfs: Path = Field(default=Path("/proc"), description="The node's proc file system.")
    sysfs: Path = Field(default=Path("/sys"), description="The node's sys file system.")
    rootfs: Path = Field(default=Path("/"), description="The node's root.")
    lock: Path = Field(
        default=Path("/run/lock/peerwatch-check.lock"),
        description="Locked while checks run: one run at a time on a node.",
    )
    work: Path | None = Field(
        default=None, description="Where checks may write while they run; unset: TMPDIR or /tmp."
    )


class ChecksConfig(Section):
    """All settings."""

    node: str = Field(
        default="",
        max_length=253,
        description="The node's name in results; empty: NODE_NAME, else the host's name.",
    )
    spool: Path | None = Field(
        default=Path("/var/lib/peerwatch/checks"),
        description="Folder to which results are written and from which the exporter reads them; "
        "null: none.",
    )
    exclude: tuple[str, ...] = Field(
        default=(), description="Checks that no suite has on this node, such as those of GPUs."
    )
    folders: tuple[Path, ...] = Field(
        default=(), description="Folders with checks of the site's own, a Python file each."
    )
    busy: BusyConfig = BusyConfig()
    paths: PathsConfig = PathsConfig()
    checks: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Settings of single checks, by name."
    )
