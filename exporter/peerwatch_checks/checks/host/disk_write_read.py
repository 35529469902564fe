"""Whether what is written to a disk is read back as it was, and how fast."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from typing import TYPE_CHECKING, BinaryIO

from pydantic import Field

from peerwatch_checks.check import Options, Outcome, register
from peerwatch_checks.judgement import judged, reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from peerwatch_checks.check import Context

_BLOCK_BYTES = 1024**2
# The device, not the file system's user, is at fault.
_OF_THE_DEVICE = frozenset({errno.EIO, errno.EROFS, errno.EUCLEAN})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class DiskWriteReadOptions(Options):
    """Which disks, how much, and how fast they must be."""

    paths: tuple[str, ...] = Field(
        default=(),
        description="Folders on the disks to test, such as those of datasets and checkpoints; "
        "none: where checks write (paths.work).",
    )
    size_bytes: int = Field(
        default=64 * 1024**2, ge=_BLOCK_BYTES, le=64 * 1024**3, description="What is written."
    )
    tolerance: float = Field(
        default=0.5, gt=0, lt=1, description="Share below the median that is never a fault."
    )
    floor: float | None = Field(
        default=None, gt=0, description="MB/s that a disk must reach where there are no peers."
    )


def write_block(file: BinaryIO, block: bytes) -> None:
    """Write a block."""
    file.write(block)


@register(
    "disk_write_read",
    "host",
    "writes a file to each disk, reads it back and compares it",
    failure="checkpoints cannot be written, are wrong when they are read, or take too long",
    severity="low",
    seconds=5.0,
    timeout_seconds=60.0,
    suites=("light", "full"),
    options=DiskWriteReadOptions,
)
def disk_write_read(
    context: Context, *, write: Callable[[BinaryIO, bytes], None] = write_block
) -> Iterator[Outcome]:
    """Yield outcomes for writing to and reading from each folder."""
    options = context.options
    assert isinstance(options, DiskWriteReadOptions)
    places = {name: context.rootfs / name.lstrip("/") for name in options.paths}
    for name, place in (places or {"work": context.work_folder}).items():
        try:
            yield from _tested(name, place, context, options, write)
        except OSError as error:
            yield _failed(name, error)


def _tested(
    name: str,
    place: Path,
    context: Context,
    options: DiskWriteReadOptions,
    write: Callable[[BinaryIO, bytes], None],
) -> Iterator[Outcome]:
    blocks = [os.urandom(_BLOCK_BYTES) for _ in range(8)]
    count = options.size_bytes // _BLOCK_BYTES
    # It has no name: whatever ends this process leaves nothing behind.
    with tempfile.TemporaryFile(dir=place, buffering=0) as file:
        begun = time.perf_counter()
        for number in range(count):
            write(file, blocks[number % 8])
        os.fsync(file.fileno())
        written = time.perf_counter() - begun
        # From the disk, not from the memory that it was written from.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        begun = time.perf_counter()
        equal = all(file.read(_BLOCK_BYTES) == blocks[number % 8] for number in range(count))
        read = time.perf_counter() - begun
    if not equal:
        text = f"What is read from {name} is not what was written. Take the node out."
        yield Outcome("fail", text, name, severity="high")
        return
    for what, seconds in (("write", written), ("read", read)):
        device = f"{name} {what}"
        peers, earlier = context.peers.get(device, ()), context.earlier.get(device, ())
        yield judged(
            count * _BLOCK_BYTES / seconds / 1e6,
            "MB/s",
            reference(peers, earlier, options.tolerance, floor=options.floor),
            what=f"{what.capitalize()} of {name}",
            advice="Look at the disk's health (SMART), what else uses it, and how full it is.",
            device=device,
        )


def _failed(name: str, error: OSError) -> Outcome:
    text = f"{name}: {error.strerror}."
    if error.errno in _OF_THE_DEVICE:
        return Outcome(
            "fail", f"{text} Take the node out and replace the disk.", name, severity="high"
        )
    if error.errno in _FULL:
        return Outcome("fail", f"{text} Remove old checkpoints, core dumps, images.", name)
    return Outcome("error", f"{text} Correct disk_write_read.paths.", name)
