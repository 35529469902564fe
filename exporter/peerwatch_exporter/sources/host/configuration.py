"""How the host is set up, from files of /proc and /sys: each value by itself."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from typing import TYPE_CHECKING

from peerwatch_exporter.catalog.config_keys import (
    FILE_KEYS,
    MODULES,
    MOST_BYTES,
    SYSCTLS,
    TIME_SERVICES,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_exporter.catalog.config_values import ConfigValues
    from peerwatch_exporter.sources.host.access import Paths

# How the kernel says that this machine does not have it.
_NOT_THERE = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ENODEV, errno.EOPNOTSUPP, errno.ENXIO}
)
# More CPUs than any node has.
_MOST_CPUS = 1024
_CPUFREQ = "sys/devices/system/cpu/cpufreq"
_IOMMU = "sys/class/iommu"


class ConfigFiles:
    """Reads the beginning of files below the roots ``proc`` and ``sys``.

    Parameters
    ----------
    paths
        The roots.

    Attributes
    ----------
    problems
        Why files that are there could not be read.
    """

    def __init__(self, paths: Paths) -> None:
        self.problems: list[Exception] = []
        self._roots = {"proc": str(paths.procfs), "sys": str(paths.sysfs)}

    def text(self, path: str) -> str | None:
        """Return the first 4 KiB of a file; None if it is not there or cannot be read.

        A device or a pipe in its place is not read: nothing here waits.
        """
        try:
            return self._read(self._path(path))
        except OSError as error:
            if error.errno not in _NOT_THERE:
                self.problems.append(error)
            return None

    def names(self, path: str) -> list[str]:
        """Return the sorted entries of a directory; none if there is no such."""
        try:
            return sorted(os.listdir(self._path(path)))  # noqa: PTH208 - names only
        except OSError as error:
            if error.errno not in _NOT_THERE:
                self.problems.append(error)
            return []

    def _path(self, path: str) -> str:
        root, _, rest = path.partition("/")
        return f"{self._roots[root]}/{rest}"

    def _read(self, path: str) -> str | None:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            return os.read(descriptor, MOST_BYTES).decode("utf-8", "replace")
        finally:
            os.close(descriptor)


def read_host(files: ConfigFiles, values: ConfigValues) -> None:
    """Add what the tables of files, sysctls and modules name, and what is summed over CPUs."""
    texts: dict[str, str | None] = {}
    for entry in FILE_KEYS:
        if entry.path not in texts:
            texts[entry.path] = files.text(entry.path)
        text = texts[entry.path]
        values.add(entry.key, None if text is None else entry.parse(text))
    for sysctl in SYSCTLS:
        values.add(f"sysctl.{sysctl.name}", files.text(f"proc/sys/{sysctl.name.replace('.', '/')}"))
    _read_modules(files, values)
    policies = [name for name in files.names(_CPUFREQ) if name.startswith("policy")][:_MOST_CPUS]
    governors = [files.text(f"{_CPUFREQ}/{policy}/scaling_governor") for policy in policies]
    values.add("cpu.governor", _counted(governors))
    if files.names("sys/class"):
        values.add("machine.iommu", "on" if files.names(_IOMMU) else "off")


def read_time_service(names: Iterable[str], values: ConfigValues) -> None:
    """Add which daemons keep the clock right, of the names of all processes."""
    running = set(names)
    services = [service for service in TIME_SERVICES if service in running]
    values.add("time.service", "+".join(services) or "none")


def _read_modules(files: ConfigFiles, values: ConfigValues) -> None:
    loaded = set(files.names("sys/module"))
    for module in MODULES:
        value = None
        if module.name in loaded:
            base = f"sys/module/{module.name}"
            # A driver of the kernel itself often has no version; what it was made of has a digest.
            source = files.text(f"{base}/srcversion")
            value = files.text(f"{base}/version") or (source and f"source {source}") or "loaded"
        elif module.beside in loaded:
            value = "not loaded"
        values.add(f"module.{module.name}", value)


def _counted(texts: Iterable[str | None]) -> str | None:
    """Return the one value that all have, or each with how many have it."""
    counts = Counter(text.strip() for text in texts if text and text.strip())
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{text} {count}" for text, count in sorted(counts.items())) or None
