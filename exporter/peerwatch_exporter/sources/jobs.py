"""The mapping directory: which training job holds which GPU, as the scheduler's prolog wrote it.

The format is dcgm-exporter's: one file per GPU, named by its index (or ``<gpu>.<instance>``),
one job id per line. The file ``node`` is ours, for jobs that hold the node but no GPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_GPU_FILE = re.compile(r"(\d{1,3})(?:\.\d{1,3})?")
_LONGEST_JOB_ID = 128


@dataclass(frozen=True, slots=True)
class JobMapping:
    """Job ids of the node, and of each GPU that has a file (an idle GPU's file is empty)."""

    node: tuple[str, ...]
    gpus: dict[int, tuple[str, ...]]

    @property
    def job_ids(self) -> tuple[str, ...]:
        """All jobs mapped, without repetition."""
        listed = (self.node, *self.gpus.values())
        return tuple(dict.fromkeys(job_id for job_ids in listed for job_id in job_ids))


def read_mapping(directory: Path) -> JobMapping:
    """Return what the mapping directory says.

    Raises
    ------
    OSError
        If the directory or a file in it cannot be read.
    """
    node: tuple[str, ...] = ()
    gpus: dict[int, tuple[str, ...]] = {}
    for path in sorted(directory.iterdir()):
        match = _GPU_FILE.fullmatch(path.name)
        if path.name != "node" and match is None:
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        job_ids = [line.strip()[:_LONGEST_JOB_ID] for line in lines if line.strip()]
        if match is None:
            node = tuple(dict.fromkeys(job_ids))
        else:
            gpu = int(match[1])
            gpus[gpu] = tuple(dict.fromkeys((*gpus.get(gpu, ()), *job_ids)))
    return JobMapping(node, gpus)
