"""Whether the file systems that jobs need are mounted, and answer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_checks.check import Options, Outcome, Skip, register
from peerwatch_common.mount_points import unescaped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from peerwatch_checks.check import Context


class MountsOptions(Options):
    """Which file systems."""

    paths: tuple[str, ...] = Field(
        default=(),
        description="Where file systems must be mounted, such as /data; none: what /etc/fstab "
        "mounts at the start.",
    )
    writable: tuple[str, ...] = Field(
        default=(), description="Those of them that must not be mounted read-only."
    )


@register(
    "mounts",
    "host",
    "file systems that must be mounted, and that they answer",
    failure="jobs do not find their data, or write checkpoints into the root file system",
    condition="missing_mount",
    seconds=0.1,
    suites=("config", "light", "full"),
    active=False,
    options=MountsOptions,
)
def mounts(context: Context) -> Iterator[Outcome]:
    """Yield an outcome for each mount; one that does not answer ends at the check's deadline.

    Raises
    ------
    Skip
        If neither the settings nor /etc/fstab name one.
    """
    options = context.options
    assert isinstance(options, MountsOptions)
    named = (*options.paths, *options.writable)
    names = list(dict.fromkeys(named or _of_fstab(context.rootfs / "etc" / "fstab")))
    if not names:
        raise Skip("Neither /etc/fstab nor checks.mounts.paths names a mount.")
    listed = _mounted(context.procfs / "self" / "mountinfo")
    for name in names:
        path = context.rootfs / name.lstrip("/")
        yield _outcome(name, path, str(path) in listed, name in options.writable)


def _of_fstab(path: Path) -> Iterator[str]:
    """Yield where file systems are mounted at the start."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        fields = line.split("#", 1)[0].split()
        if len(fields) > 3 and fields[1].startswith("/"):
            options = fields[3].split(",")
            if not {"noauto", "nofail", "x-systemd.automount"} & set(options):
                # The file writes a space as octal.
                yield fields[1].replace(r"\040", " ")


def _mounted(path: Path) -> frozenset[str]:
    """Return where something is mounted; a folder of the same file system is no other device."""
    try:
        lines = os.fsdecode(path.read_bytes()).split("\n")
    except OSError:
        return frozenset()
    return frozenset(
        unescaped(fields[4]) for line in lines if len(fields := line.split(" ", 5)) > 5
    )


def _outcome(name: str, path: Path, listed: bool, writable: bool) -> Outcome:
    try:
        mounted = listed or path.is_mount()
        read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except PermissionError as error:
        return Outcome("error", f"{name}: {error.strerror}. Run it as root.", name)
    except OSError as error:
        return Outcome("fail", f"{name}: {error.strerror}. Mount it again.", name)
    if not mounted:
        return Outcome("fail", f"Nothing is mounted at {name}. Mount it.", name)
    if writable and read_only:
        text = f"{name} is mounted read-only. Look for errors of its device in the kernel log."
        return Outcome("fail", text, name)
    return Outcome("pass", f"{name} is mounted and answers.", name)
