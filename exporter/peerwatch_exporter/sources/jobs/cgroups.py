"""Which Slurm job or Kubernetes pod a process belongs to, from the names of its control groups.

The names are those that Slurm (plugins cgroup/v1 and cgroup/v2), the kubelet (drivers cgroupfs
and systemd) and the container runtimes give. A process seen from a container with a control group
namespace of its own has a path relative to it, such as ``/../../pod<uid>/<container id>``, so only
the components of a path count, not where it begins.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.host.process_files import read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from peerwatch_exporter.sources.host.processes import Process, ProcessKey

# A process that belongs to nobody may be moved into its group a little later: looked at six times
# as often.
_VALID_SECONDS = 60.0
_NOTHING_VALID_SECONDS = 10.0

# slurm, or slurm_<node> with several slurmd on a machine; below v2 a scope of slurmstepd.
_SLURM = re.compile(r"slurm(?:_[^/]+)?|(?:[^/]+_)?slurmstepd\.scope")
_SLURM_USER = re.compile(r"uid_([0-9]{1,10})")
_SLURM_JOB = re.compile(r"job_([0-9]{1,10})")
# pod<uid>, or the systemd slice of it, where dashes separate levels and the uid has underscores;
# the uid of a static pod is a hash without separators.
_POD = re.compile(
    r"(?:[^/:]*-)?pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?:\.slice)?"
    r"(?::[^:]+:([0-9a-f]{12,64}))?"
)
_CONTAINER = re.compile(r"(?:(?:cri-containerd|containerd|crio|docker|libpod)-)?([0-9a-f]{32,64})")


@dataclass(frozen=True, slots=True)
class CgroupOwner:
    """Whose process it is: a Slurm job's or a pod's.

    Parameters
    ----------
    slurm_job
        The job's id; empty for a pod.
    user_id
        Who the Slurm job runs as, where the path has it (cgroup v1).
    pod_uid
        The pod's uid, with dashes unless it is a static pod's; empty for a Slurm job.
    container_id
        The pod's container; empty if the process is in none.
    """

    slurm_job: str = ""
    user_id: int | None = None
    pod_uid: str = ""
    container_id: str = ""


def parse_cgroup(text: str) -> CgroupOwner | None:
    """Return the owner that a ``/proc/<pid>/cgroup`` names, or None if it names none.

    With cgroup v1 there is a line per controller, and not every controller is used for jobs. The
    innermost owner counts: a Slurm daemon may itself run in a pod.
    """
    best: CgroupOwner | None = None
    deepest = -1
    for line in text.splitlines():
        # Paths of containerd without its systemd driver have colons of their own.
        components = line.split(":", 2)[-1].split("/")
        for find in (_slurm_owner, _pod_owner):
            depth, owner = find(components)
            if owner is not None and depth > deepest:
                best, deepest = owner, depth
    return best


def _slurm_owner(components: Sequence[str]) -> tuple[int, CgroupOwner | None]:
    inside = False
    user_id: int | None = None
    for depth, component in enumerate(components):
        if not inside:
            inside = _SLURM.fullmatch(component) is not None
        elif match := _SLURM_USER.fullmatch(component):
            user_id = int(match[1])
        elif match := _SLURM_JOB.fullmatch(component):
            return depth, CgroupOwner(slurm_job=match[1], user_id=user_id)
    return -1, None


def _pod_owner(components: Sequence[str]) -> tuple[int, CgroupOwner | None]:
    for depth in range(len(components) - 1, -1, -1):
        match = _POD.fullmatch(components[depth])
        if match is not None:
            uid = match[1].replace("_", "-")
            return depth, CgroupOwner(
                pod_uid=uid, container_id=match[2] or _container_of(components[depth + 1 :])
            )
    return -1, None


def _container_of(components: Sequence[str]) -> str:
    for component in components:
        match = _CONTAINER.fullmatch(component.removesuffix(".scope"))
        if match is not None:
            return match[1]
    return ""


@dataclass(frozen=True, slots=True)
class _Entry:
    owner: CgroupOwner | None
    valid_until: float


class CgroupReader:
    """Reads the owners of processes and remembers them.

    Parameters
    ----------
    root
        The /proc root.
    monotonic
        Clock for the age of answers.
    read
        How a file is read; tests hand in one that refuses.
    """

    def __init__(
        self,
        root: Path,
        *,
        monotonic: Callable[[], float],
        read: Callable[[str], bytes] = read_file,
    ) -> None:
        self._root = str(root)
        self._monotonic = monotonic
        self._read = read
        self._entries: dict[ProcessKey, _Entry] = {}

    def owners(self, processes: Sequence[Process]) -> dict[int, CgroupOwner]:
        """Return the owners of those processes that have one, by pid.

        Raises
        ------
        PermissionError
            If not one of them may be read.
        """
        entries: dict[ProcessKey, _Entry] = {}
        refused: PermissionError | None = None
        now = self._monotonic()
        for process in processes:
            old = self._entries.get(process.key)
            # Mostly all of them.
            if old is not None and (now < old.valid_until or process.state == "zombie"):
                entries[process.key] = old
                continue
            try:
                entry = self._entry(process, now)
            except PermissionError as error:
                refused = error
                continue
            if entry is not None:
                entries[process.key] = entry
        self._entries = entries
        if refused is not None and not entries:
            raise refused
        return {pid: entry.owner for (pid, _), entry in entries.items() if entry.owner is not None}

    def _entry(self, process: Process, now: float) -> _Entry | None:
        try:
            content = self._read(f"{self._root}/{process.pid}/cgroup")
            owner = parse_cgroup(content.decode(errors="replace"))
            if owner is not None and owner.slurm_job and owner.user_id is None:
                status = os.stat(f"{self._root}/{process.pid}")  # noqa: PTH116 - as read_file
                owner = CgroupOwner(slurm_job=owner.slurm_job, user_id=status.st_uid)
        except (FileNotFoundError, ProcessLookupError):
            return None
        valid_seconds = _NOTHING_VALID_SECONDS if owner is None else _VALID_SECONDS
        return _Entry(owner, now + valid_seconds)
