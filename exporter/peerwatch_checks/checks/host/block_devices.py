"""Whether a disk was given up, a file system has recorded errors, or a RAID lacks a disk."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from peerwatch_checks.check import Outcome, Skip, register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from peerwatch_checks.check import Context

# In these the kernel sends no requests any more (scsi_sysfs.c and nvme/host/sysfs.c of Linux).
_GONE = frozenset({"offline", "transport-offline", "deleted", "cancel", "dead"})
_FILE_SYSTEMS = ("ext4",)
_DAY = 86_400.0


@register(
    "block_devices",
    "host",
    "states of disks, errors that file systems have recorded, and RAIDs that lack a disk",
    failure="a disk does not answer any more, or returned errors: checkpoints and data are lost",
    condition="block_device_errors",
    seconds=0.1,
    suites=("config", "light", "full"),
    active=False,
)
def block_devices(context: Context, *, now: Callable[[], float] = time.time) -> Iterator[Outcome]:
    """Yield an outcome for each device that is not well, or one for all.

    Parameters
    ----------
    context
        Where /sys is.
    now
        Unix time.

    Raises
    ------
    Skip
        If the node shows no disk.
    """
    known = [*_states(context.sysfs), *_recorded(context.sysfs, now()), *_raids(context.sysfs)]
    if not known:
        raise Skip(f"No disk, file system or RAID below {context.sysfs} says how it is.")
    bad = [each for each in known if each.status != "pass"]
    yield from bad
    if not bad:
        yield Outcome("pass", f"{len(known)} disks, file systems and RAIDs have no error.")


def _states(sysfs: Path) -> Iterator[Outcome]:
    """Yield how the kernel regards each SCSI disk and NVMe controller."""
    paths = [*(sysfs / "block").glob("sd*/device/state"), *(sysfs / "class/nvme").glob("*/state")]
    for path in sorted(paths):
        name = path.parents[1].name if path.parent.name == "device" else path.parent.name
        state = _text(path)
        if state in _GONE:
            text = f"{name} is {state}: the kernel has given it up. Take the node out."
            yield Outcome("fail", f"{text} Replace the disk.", name)
        elif state:
            yield Outcome("pass", "", name)


def _recorded(sysfs: Path, now: float) -> Iterator[Outcome]:
    """Yield what file systems have recorded of errors since they were last repaired."""
    for kind in _FILE_SYSTEMS:
        for path in sorted((sysfs / "fs" / kind).glob("*/errors_count")):
            count, last = _number(path), _number(path.with_name("last_error_time"))
            name = f"{kind} {path.parent.name}"
            if count is None:
                continue
            if not count:
                yield Outcome("pass", "", name)
                continue
            hours = None if not last else max(0.0, now - last) / 3600
            recent = hours is not None and hours * 3600 < _DAY
            when = "" if hours is None else f", the last {hours:.0f} h ago"
            text = f"The file system on {path.parent.name} has recorded {count:.0f} errors{when}."
            yield Outcome(
                "fail" if recent else "warn",
                f"{text} Read the kernel log, look at the disk (smartctl), and repair it (fsck).",
                name,
                count,
                "errors",
            )


def _raids(sysfs: Path) -> Iterator[Outcome]:
    for path in sorted((sysfs / "block").glob("md*/md/degraded")):
        name = path.parents[1].name
        missing = _number(path)
        if missing:
            text = f"{name} lacks {missing:.0f} of its disks. Read /proc/mdstat and replace them."
            yield Outcome("warn", text, name, missing, "disks")
        elif missing is not None:
            yield Outcome("pass", "", name)


def _number(path: Path) -> float | None:
    try:
        return float(_text(path))
    except ValueError:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
