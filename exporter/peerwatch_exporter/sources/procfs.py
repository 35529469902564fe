"""Typed reads of the machine-wide files below a /proc root."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# USER_HZ: what the kernel shows times in to user space, 100 on every Linux port Python runs on.
TICKS_PER_SECOND = 100
# diskstats counts 512-byte sectors whatever the device's own sector size is.
SECTOR_BYTES = 512
# Partitions repeat their disk's counters; loop and ram devices are memory or files on a disk.
_NOT_A_DISK = re.compile(
    r"(z?ram|loop|fd|sr)\d+$|(h|s|v|xv)d[a-z]+\d+$|nvme\d+n\d+p\d+$|mmcblk\d+(p\d+|boot\d+)$"
)
# Local and remote address, state 01 (established), then send and receive queue, all hexadecimal.
_ESTABLISHED = re.compile(
    rb": [0-9A-F]+:[0-9A-F]{4} [0-9A-F]+:[0-9A-F]{4} 01 ([0-9A-F]{8}):([0-9A-F]{8}) "
)


class GarbledFileError(ValueError):
    """A file of the host is there but does not read as it should."""

    error_class = "garbled_file"

    def __init__(self, path: Path | str, line: str) -> None:
        super().__init__(f"{path} does not have the expected form at {line[:80]!r}.")


@dataclass(frozen=True, slots=True)
class MachineStat:
    """What /proc/stat says: CPU seconds by mode, and counters of the whole machine."""

    cpu_seconds: dict[str, float]
    cpus: int
    context_switches: int
    boot_time: float


@dataclass(frozen=True, slots=True)
class DiskStat:
    """Counters of one disk; ``io_seconds`` (requests in flight) is None where nobody counts it."""

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

    def stat(self) -> MachineStat:
        """Return CPU times and machine counters from ``stat``."""
        path = self.root / "stat"
        lines = path.read_text().splitlines()
        rows = {line.split(None, 1)[0]: line for line in lines if line.strip()}
        try:
            ticks = [int(field) for field in rows["cpu"].split()[1:]]
            seconds = {
                mode: tick / TICKS_PER_SECOND for mode, tick in zip(_CPU_MODES, ticks, strict=False)
            }
            return MachineStat(
                cpu_seconds=seconds,
                cpus=sum(1 for name in rows if re.fullmatch(r"cpu\d+", name)),
                context_switches=int(rows["ctxt"].split()[1]),
                boot_time=float(rows["btime"].split()[1]),
            )
        except (KeyError, ValueError, IndexError) as error:
            raise GarbledFileError(path, next(iter(rows.values()), "")) from error

    def load1(self) -> float:
        """Return the one-minute load average from ``loadavg``."""
        path = self.root / "loadavg"
        text = path.read_text()
        try:
            return float(text.split()[0])
        except (IndexError, ValueError) as error:
            raise GarbledFileError(path, text) from error

    def meminfo(self) -> dict[str, int]:
        """Return ``meminfo`` in bytes by name."""
        path = self.root / "meminfo"
        values = {}
        for line in path.read_text().splitlines():
            name, _, rest = line.partition(":")
            fields = rest.split()
            if not fields or not fields[0].isdigit():
                raise GarbledFileError(path, line)
            values[name] = int(fields[0]) * (1024 if fields[1:] == ["kB"] else 1)
        for name in ("MemTotal", "MemAvailable"):
            if name not in values:
                raise GarbledFileError(path, f"no {name}")
        return values

    def disks(self) -> dict[str, DiskStat]:
        """Return the counters of whole disks from ``diskstats``."""
        path = self.root / "diskstats"
        disks = {}
        for line in path.read_text().splitlines():
            fields = line.split()
            try:
                if _NOT_A_DISK.match(fields[2]):
                    continue
                disks[fields[2]] = DiskStat(
                    read_bytes=int(fields[5]) * SECTOR_BYTES,
                    written_bytes=int(fields[9]) * SECTOR_BYTES,
                    io_seconds=int(fields[12]) / 1000,
                )
            except (IndexError, ValueError) as error:
                raise GarbledFileError(path, line) from error
        return disks

    def interfaces(self) -> dict[str, InterfaceStat]:
        """Return the counters of every interface of this network namespace from ``net/dev``."""
        path = self.root / "net" / "dev"
        interfaces = {}
        for line in path.read_text().splitlines()[2:]:
            name, colon, rest = line.partition(":")
            try:
                values = [int(field) for field in rest.split()]
                if not colon:
                    raise ValueError(line)
                # Eight receive columns, then eight transmit columns, in the same order.
                pairs = list(zip(values[:4], values[8:12], strict=True))
                interfaces[name.strip()] = InterfaceStat(*pairs)
            except (TypeError, ValueError) as error:
                raise GarbledFileError(path, line) from error
        return interfaces

    def protocol_counters(self, file: str, protocol: str) -> dict[str, int]:
        """Return one protocol's counters from ``net/snmp`` or ``net/netstat``.

        Parameters
        ----------
        file
            ``snmp`` or ``netstat``: pairs of lines, first the names, then the values.
        protocol
            The word both lines begin with, such as ``Tcp``.
        """
        path = self.root / "net" / file
        rows = [line.split() for line in path.read_text().splitlines()]
        found = [row[1:] for row in rows if row and row[0] == f"{protocol}:"]
        try:
            names, values = found
            return {name: int(value) for name, value in zip(names, values, strict=True)}
        except ValueError as error:
            raise GarbledFileError(path, f"{protocol}: {found}") from error

    def tcp_queues(self) -> TcpQueues:
        """Return the bytes queued in established connections from ``net/tcp`` and ``net/tcp6``."""
        send = receive = 0
        for name, protocol, summary in (("tcp", "TCP", "sockstat"), ("tcp6", "TCP6", "sockstat6")):
            if not self._has_sockets(protocol, summary):
                continue
            for match in _ESTABLISHED.finditer((self.root / "net" / name).read_bytes()):
                send += int(match[1], 16)
                receive += int(match[2], 16)
        return TcpQueues(send, receive)

    def _has_sockets(self, protocol: str, summary: str) -> bool:
        # The list of sockets costs the kernel a walk over its whole hash table (5 ms on a small
        # machine) even if it is empty, as it mostly is for IPv6; the summary costs nothing.
        path = self.root / "net" / summary
        if not path.exists():  # a kernel without IPv6
            return False
        return re.search(rf"^{protocol}: inuse 0\b", path.read_text(), re.MULTILINE) is None

    def pressure(self) -> dict[tuple[str, str], float]:
        """Return stall seconds by (resource, some or full) from ``pressure``, where it exists."""
        stalls = {}
        for resource in ("cpu", "io", "memory"):
            path = self.root / "pressure" / resource
            if not path.exists():
                continue
            for line in path.read_text().splitlines():
                kind, _, rest = line.partition(" ")
                total = rest.rpartition("total=")[2]
                if kind not in {"some", "full"} or not total.isdigit():
                    raise GarbledFileError(path, line)
                stalls[resource, kind] = int(total) / 1e6
        return stalls

    def gpu_count(self) -> int:
        """Return how many GPUs NVIDIA's driver lists below ``driver/nvidia/gpus``."""
        path = self.root / "driver" / "nvidia" / "gpus"
        return sum(1 for _ in path.iterdir()) if path.is_dir() else 0
