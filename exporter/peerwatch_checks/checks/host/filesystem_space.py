"""Whether the node's file systems have room for logs, checkpoints and core dumps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_checks.check import Options, Outcome, register

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from peerwatch_checks.check import Context
    from peerwatch_common.check_results.record import Status


class FilesystemSpaceOptions(Options):
    """Which file systems, and how full they may be."""

    paths: tuple[str, ...] = Field(
        default=("/", "/tmp", "/var"),  # noqa: S108 - it is measured, not written to
        description="Where file systems are mounted; a path on one already tested is left out.",
    )
    warn_ratio: float = Field(
        default=0.80, gt=0, le=1, description="Share of space or inodes in use that is a warning."
    )
    fail_ratio: float = Field(
        default=0.95, gt=0, le=1, description="Share of space or inodes in use that is a failure."
    )


@register(
    "filesystem_space",
    "host",
    "space and inodes left on the node's file systems",
    failure="logs, checkpoints or the container runtime will fail for want of space",
    condition="filesystem_full",
    seconds=0.1,
    suites=("config", "light", "full"),
    active=False,
    options=FilesystemSpaceOptions,
)
def filesystem_space(context: Context) -> Iterator[Outcome]:
    """Yield an outcome for each file system."""
    options = context.options
    assert isinstance(options, FilesystemSpaceOptions)
    seen: set[int] = set()
    for name in options.paths:
        path = context.rootfs / name.lstrip("/")
        try:
            number = path.stat().st_dev
            if number not in seen:
                yield _outcome(name, path, options)
            seen.add(number)
        except OSError as error:
            text = f"{name} cannot be read: {error.strerror}. Correct filesystem_space.paths."
            yield Outcome("error", text, name)


def _outcome(name: str, path: Path, options: FilesystemSpaceOptions) -> Outcome:
    state = os.statvfs(path)
    space = _used(state.f_blocks, state.f_bfree, state.f_bavail)
    inodes = _used(state.f_files, state.f_ffree, state.f_favail)
    used = max(space, inodes)
    what = "space" if space >= inodes else "inodes"
    text = f"{used:.1%} of the {what} of {name} is in use, {options.fail_ratio:.0%} at most"
    if used >= options.fail_ratio:
        advice = "Remove what is not needed: old checkpoints, core dumps, container images."
        return Outcome("fail", f"{text}. {advice}", name, used, "ratio", options.fail_ratio)
    status: Status = "warn" if used >= options.warn_ratio else "pass"
    return Outcome(status, f"{text}.", name, used, "ratio", options.fail_ratio)


def _used(total: int, free: int, available: int) -> float:
    """Return the share in use, of what users who are not root may use; as ``df`` shows it."""
    in_use = total - free
    # Some file systems (btrfs, most network ones) do not count their inodes: 0 of 0.
    return in_use / (in_use + available) if in_use + available > 0 else 0.0
