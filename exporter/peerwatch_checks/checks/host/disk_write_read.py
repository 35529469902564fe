"""Whether what is written to a disk is read back as it was, and how fast."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from typing import TYPE_CHECKING, BinaryIO

from pydantic import Field

from peerwatch_checks.check import Options, Outcome, register
from peerwatch_checks.disturbance import Disturbance
from peerwatch_checks.evaluation import evaluate, reference_for
from peerwatch_checks.least_time import LeastTime, undisturbed
from peerwatch_common.health_conditions import severity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from peerwatch_checks.check import Context

# Chosen: large enough for the full speed of disks, small enough to be a part that is taken whole.
_BLOCK_BYTES = 1024**2
# Passes without news; of all of them the best counts, as others use the disk as well. Chosen: few,
# for each writes the file anew.
_PASSES = 2
# Where a disk stays slow, or is large: others may use it for many seconds at a time. Chosen: a
# quarter of a suite's minute.
_SECONDS = 15.0
# Of the time until the check's deadline, that of all disks together; the rest is for a last pass.
_SHARE = 0.8
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
    """Write a block; the system may take it in parts, where a disk is nearly full."""
    rest = memoryview(block)
    while rest:
        rest = rest[file.write(rest) :]


@register(
    "disk_write_read",
    "host",
    "writes a file to each disk, reads it back and compares it",
    failure="checkpoints cannot be written, are wrong when they are read, or take too long",
    condition="slow_storage",
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
    places = places or {"work": context.work_folder}
    within = min(_SECONDS, _SHARE * context.seconds / len(places))
    for name, place in places.items():
        try:
            yield from _tested(name, place, context, options, write, within)
        except OSError as error:
            yield _failed(name, error)


def _tested(
    name: str,
    place: Path,
    context: Context,
    options: DiskWriteReadOptions,
    write: Callable[[BinaryIO, bytes], None],
    within: float,
) -> Iterator[Outcome]:
    count = options.size_bytes // _BLOCK_BYTES
    disk = _Disk(count, write)
    least = {"write": LeastTime(_PASSES), "read": LeastTime(_PASSES)}
    against = {
        direction: reference_for(
            context, f"{name} {direction}", "MB/s", options.tolerance, floor=options.floor
        )
        for direction in least
    }

    def rate(direction: str) -> float:
        return count * _BLOCK_BYTES / least[direction].seconds / 1e6

    def is_done(direction: str) -> bool:
        limit = against[direction]
        return least[direction].is_stable and (limit is None or limit.allows(rate(direction)))

    disturbance = Disturbance(context, place)
    passes = 0
    # It has no name: whatever ends this process leaves nothing behind.
    with tempfile.TemporaryFile(dir=place, buffering=0) as file:
        begun = time.monotonic()
        taken = 0.0
        while taken == 0.0 or begun + within > time.monotonic() + taken:
            start = time.monotonic()
            least["write"].add([disk.written(file)])
            seconds, equal = disk.read(file)
            if not equal:
                text = f"What is read from {name} is not what was written. Take the node out."
                yield Outcome("fail", text, name, severity=severity_of("wrong_results"))
                return
            least["read"].add([seconds])
            passes += 1
            taken = time.monotonic() - start
            if all(map(is_done, least)):
                break
    # Each byte once there and once back.
    disturbed = disturbance.reason(2 * passes * count * _BLOCK_BYTES)
    for direction in least:
        yield evaluate(
            rate(direction),
            "MB/s",
            against[direction],
            what=f"{direction.capitalize()} of {name}",
            advice="Look at the disk's health (SMART), what else uses it, and how full it is.",
            device=f"{name} {direction}",
            disturbed=disturbed,
        )


class _Disk:
    """Writes and reads a file of some blocks."""

    def __init__(self, count: int, write: Callable[[BinaryIO, bytes], None]) -> None:
        blocks = [os.urandom(_BLOCK_BYTES) for _ in range(8)]
        self._blocks = [blocks[number % 8] for number in range(count)]
        self._write = write

    def written(self, file: BinaryIO) -> float:
        """Return the seconds until all is on the disk."""
        file.seek(0)
        begun = undisturbed()
        for block in self._blocks:
            self._write(file, block)
        os.fsync(file.fileno())
        return undisturbed() - begun

    def read(self, file: BinaryIO) -> tuple[float, bool]:
        """Return the seconds in which all is read, and whether it is what was written."""
        # From the disk, not from the memory that it was written from.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        target = bytearray(_BLOCK_BYTES)
        begun = undisturbed()
        equal = all(_filled(file, memoryview(target)) and target == each for each in self._blocks)
        return undisturbed() - begun, equal


def _filled(file: BinaryIO, target: memoryview) -> bool:
    """Return whether there was enough to fill a block; the system may give it in parts."""
    done = 0
    while done < len(target):
        # Without a buffer it is a raw file.
        count = file.readinto(target[done:])  # type: ignore[attr-defined]
        if not count:
            return False
        done += count
    return True


def _failed(name: str, error: OSError) -> Outcome:
    text = f"{name}: {error.strerror}."
    if error.errno in _OF_THE_DEVICE:
        return Outcome(
            "fail",
            f"{text} Take the node out and replace the disk.",
            name,
            severity=severity_of("block_device_errors"),
        )
    if error.errno in _FULL:
        return Outcome("fail", f"{text} Remove old checkpoints, core dumps, images.", name)
    return Outcome("error", f"{text} Correct disk_write_read.paths.", name)
