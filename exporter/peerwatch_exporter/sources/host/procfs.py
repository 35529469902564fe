"""Typed reads of the machine-wide files below a /proc root."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.files.whole_file import read_whole

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

# USER_HZ: what the kernel shows times in to user space, 100 on every Linux port Python runs on.
TICKS_PER_SECOND = 100
# diskstats counts 512-byte sectors whatever the device's own sector size is.
SECTOR_BYTES = 512
# The kernel's counters have 64 bits.
_MAX_DIGITS = 20
# Partitions repeat their disk's counters; loop and ram devices are memory or files on a disk.
_NOT_A_DISK = re.compile(
    rb"(z?ram|loop|fd|sr)\d+$|(h|s|v|xv)d[a-z]+\d+$|nvme\d+n\d+p\d+$|mmcblk\d+(p\d+|boot\d+)$"
)
# Local and remote address, state 01 (established), then send and receive queue, all hexadecimal.
# Most of some hundred connections have nothing queued, and are passed over here.
_ESTABLISHED = re.compile(
    rb": [0-9A-F]+:[0-9A-F]{4} [0-9A-F]+:[0-9A-F]{4} 01 (?!0{8}:0{8} )([0-9A-F]{8}):([0-9A-F]{8}) "
)
_MEMORY = re.compile(rb"^(Mem(?:Total|Available)):(.*)$", re.MULTILINE)


class GarbledFileError(ValueError):
    """A file of the host is there but does not read as it should."""

    error_class = "garbled_file"

    def __init__(self, path: Path | str, line: str | bytes) -> None:
        text = line if isinstance(line, str) else line[:80].decode("utf-8", "replace")
        super().__init__(f"{path} does not have the expected form at {text[:80]!r}.")


@dataclass(frozen=True, slots=True)
class MachineStat:
    """The content of /proc/stat: CPU seconds by mode, and counters of the whole machine.

    ``boot_time`` is Unix time, ``blocked`` how many tasks wait for storage, ``forks`` how many
    threads and processes were ever made. What the file does not say, or says in another form, is
    None.
    """

    cpu_seconds: dict[str, float]
    cpus: int
    context_switches: int | None
    boot_time: float | None
    blocked: int | None
    forks: int | None = None


@dataclass(frozen=True, slots=True)
class DiskStat:
    """Counters of one disk; ``io_seconds`` (requests in flight) is None where it is not counted."""

    read_bytes: int
    written_bytes: int
    io_seconds: float | None


@dataclass(frozen=True, slots=True)
class InterfaceStat:
    """Counters of one network interface, each as (receive, transmit)."""

    bytes: tuple[int, int]
    packets: tuple[int, int]
    errors: tuple[int, int]
    drops: tuple[int, int]


@dataclass(frozen=True, slots=True)
class TcpQueues:
    """Bytes waiting in the queues of all established connections."""

    send_bytes: int
    receive_bytes: int


_CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


class Procfs:
    """Reads below one /proc root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._prefix = f"{root}/"

    def stat(self) -> MachineStat:
        """Return CPU times and machine counters from ``stat``."""
        path = self._prefix + "stat"
        content = read_whole(path)
        first = content.partition(b"\n")[0]
        try:
            name, *fields = first.split()
            if name != b"cpu":
                raise ValueError(name)
            ticks = [_number(field) for field in fields]
            seconds = {
                mode: tick / TICKS_PER_SECOND for mode, tick in zip(_CPU_MODES, ticks, strict=False)
            }
            boot_time = _optional(content, b"btime")
            return MachineStat(
                cpu_seconds=seconds,
                # One line each, behind the first line, which is that of all of them.
                cpus=content.count(b"\ncpu"),
                context_switches=_optional(content, b"ctxt"),
                boot_time=None if boot_time is None else float(boot_time),
                blocked=_optional(content, b"procs_blocked"),
                forks=_optional(content, b"processes"),
            )
        except ValueError as error:
            raise GarbledFileError(path, first) from error

    def boot_time(self) -> float:
        """Return when the machine booted (Unix time), from ``stat``."""
        found = self.stat().boot_time
        if found is None:
            raise GarbledFileError(self._prefix + "stat", "no btime")
        return found

    def load1(self) -> float:
        """Return the one-minute load average from ``loadavg``."""
        path = self._prefix + "loadavg"
        content = read_whole(path)
        try:
            load = float(content.split()[0])
        except (IndexError, ValueError) as error:
            raise GarbledFileError(path, content) from error
        if not math.isfinite(load):
            raise GarbledFileError(path, content)
        return load

    def meminfo(self) -> dict[str, int]:
        """Return ``MemTotal`` and ``MemAvailable`` of ``meminfo`` in bytes, those that are there.

        Raises
        ------
        GarbledFileError
            If neither is, or what is there is no number.
        """
        path = self._prefix + "meminfo"
        values = {}
        for match in _MEMORY.finditer(read_whole(path)):
            fields = match[2].split()
            try:
                number = _number(fields[0])
            except (IndexError, ValueError) as error:
                raise GarbledFileError(path, match[0]) from error
            values[match[1].decode()] = number * (1024 if fields[1:] == [b"kB"] else 1)
        if not values:
            raise GarbledFileError(path, "no MemTotal")
        return values

    def disks(
        self, limit: int | None = None, problems: list[Exception] | None = None
    ) -> dict[str, DiskStat]:
        """Return the counters of whole disks from ``diskstats``, of ``limit`` disks at most.

        Parameters
        ----------
        limit
            How many disks at most.
        problems
            Takes a line that cannot be read, which then costs only its own disk; None: it is
            raised.
        """
        path = self._prefix + "diskstats"
        disks: dict[str, DiskStat] = {}
        for line in read_whole(path).splitlines():
            if limit is not None and len(disks) >= limit:
                break
            fields = line.split()
            try:
                if _NOT_A_DISK.match(fields[2]):
                    continue
                disks[_text(fields[2])] = DiskStat(
                    read_bytes=_number(fields[5]) * SECTOR_BYTES,
                    written_bytes=_number(fields[9]) * SECTOR_BYTES,
                    io_seconds=_number(fields[12]) / 1000,
                )
            except (IndexError, ValueError) as error:
                _refuse(GarbledFileError(path, line), error, problems)
        return disks

    def interfaces(
        self, limit: int | None = None, problems: list[Exception] | None = None
    ) -> dict[str, InterfaceStat]:
        """Return the counters of this network namespace's interfaces from ``net/dev``.

        Parameters
        ----------
        limit
            How many at most; the kernel lists them in the order they were made, so that a
            machine's own come before those of its containers.
        problems
            As in ``disks``.
        """
        path = self._prefix + "net/dev"
        interfaces: dict[str, InterfaceStat] = {}
        for line in read_whole(path).splitlines()[2:]:
            if limit is not None and len(interfaces) >= limit:
                break
            # A name may hold a colon (an alias); no column does.
            name, colon, rest = line.rpartition(b":")
            try:
                values = _numbers(rest)
                if not colon:
                    raise ValueError(line)
                # Eight receive columns, then eight transmit columns, in the same order.
                pairs = list(zip(values[:4], values[8:12], strict=True))
                interfaces[_text(name.strip())] = InterfaceStat(*pairs)
            except (TypeError, ValueError) as error:
                _refuse(GarbledFileError(path, line), error, problems)
        return interfaces

    def protocol_counters(
        self, file: str, protocol: str, wanted: Collection[str] | None = None
    ) -> dict[str, int]:
        """Return one protocol's counters from ``net/snmp`` or ``net/netstat``.

        Parameters
        ----------
        file
            ``snmp`` or ``netstat``: pairs of lines, first the names, then the values.
        protocol
            The word both lines begin with, such as ``Tcp``.
        wanted
            Names of the counters that are returned; None: of all, which may be more than a hundred.
        """
        path = f"{self._prefix}net/{file}"
        word = f"{protocol}:".encode()
        chosen = None if wanted is None else {name.encode() for name in wanted}
        found = [
            line.split()[1:]
            for line in read_whole(path).splitlines()
            if line.startswith(word) and len(line) > len(word)
        ]
        try:
            names, values = found
            return {
                # A setting among the counters may be -1.
                _text(name): -_number(value[1:]) if value.startswith(b"-") else _number(value)
                for name, value in zip(names, values, strict=True)
                if chosen is None or name in chosen
            }
        except ValueError as error:
            raise GarbledFileError(path, f"{protocol}: {str(found)[:60]}") from error

    def tcp_queues(self) -> TcpQueues:
        """Return the bytes queued in established connections from ``net/tcp`` and ``net/tcp6``."""
        send = receive = 0
        for name, protocol, summary in (("tcp", "TCP", "sockstat"), ("tcp6", "TCP6", "sockstat6")):
            if not self._has_sockets(protocol, summary):
                continue
            content = read_whole(f"{self._prefix}net/{name}")
            for match in _ESTABLISHED.finditer(content):
                send += int(match[1], 16)
                receive += int(match[2], 16)
        return TcpQueues(send, receive)

    def _has_sockets(self, protocol: str, summary: str) -> bool:
        # The list of sockets costs the kernel a scan of its whole hash table (5 ms on a small
        # machine) even if it is empty, as it mostly is for IPv6; the summary costs nothing.
        try:
            content = read_whole(f"{self._prefix}net/{summary}")
        except FileNotFoundError:  # a kernel without IPv6
            return False
        return f"{protocol}: inuse 0 ".encode() not in content.replace(b"\n", b" ")

    def pressure(self, problems: list[Exception] | None = None) -> dict[tuple[str, str], float]:
        """Return stall seconds by (resource, some or full) from ``pressure``, where it exists.

        ``problems`` is as in ``disks``; a file that cannot be read costs its own resource.
        """
        stalls = {}
        for resource in ("cpu", "io", "memory"):
            path = f"{self._prefix}pressure/{resource}"
            try:
                content = read_whole(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                if problems is None:
                    raise
                problems.append(error)
                continue
            for line in content.splitlines():
                kind, _, rest = line.partition(b" ")
                total = rest.rpartition(b"total=")[2]
                try:
                    if kind not in {b"some", b"full"}:
                        raise ValueError(kind)
                    stalls[resource, kind.decode()] = _number(total) / 1e6
                except ValueError as error:
                    _refuse(GarbledFileError(path, line), error, problems)
        return stalls

    def hung_tasks(self) -> int | None:
        """Return how many tasks the kernel found hung since the start; None before Linux 6.13."""
        path = self._prefix + "sys/kernel/hung_task_detect_count"
        try:
            content = read_whole(path)
        except FileNotFoundError:
            return None
        try:
            return _number(content.strip())
        except ValueError as error:
            raise GarbledFileError(path, content) from error

    def gpu_count(self) -> int:
        """Return how many GPUs NVIDIA's driver lists below ``driver/nvidia/gpus``."""
        path = self.root / "driver" / "nvidia" / "gpus"
        return sum(1 for _ in path.iterdir()) if path.is_dir() else 0


def _number(field: bytes | None) -> int:
    """Return a counter's value; ``ValueError`` for what the kernel would not write."""
    if field is None or not field.isdigit() or len(field) > _MAX_DIGITS:
        raise ValueError(field)
    return int(field)


def _numbers(line: bytes) -> list[int]:
    """Return the counters of a line; ``ValueError`` if one is none."""
    fields = line.split()
    # All at once, as there are hundreds in a second; one by one only to find what is wrong.
    if len(max(fields, key=len, default=b"")) <= _MAX_DIGITS and b"".join(fields).isdigit():
        return list(map(int, fields))
    return [_number(field) for field in fields]


def _optional(content: bytes, name: bytes) -> int | None:
    """Return the number behind a name at the beginning of a line; None if there is none."""
    try:
        return _number(_row(content, name))
    except ValueError:
        return None


def _refuse(garbled: GarbledFileError, cause: Exception, problems: list[Exception] | None) -> None:
    if problems is None:
        raise garbled from cause
    problems.append(garbled)


def _row(content: bytes, name: bytes) -> bytes | None:
    """Return what stands behind a name at the beginning of a line, None if there is no such."""
    start = content.find(b"\n" + name + b" ")
    if start < 0:
        return None
    return content[start + len(name) + 2 :].partition(b"\n")[0].strip()


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
