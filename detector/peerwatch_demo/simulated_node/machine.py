"""The machine-wide files below /proc of the fake node, as text at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_demo.job.timeline import Phase
from peerwatch_demo.simulated_node.node_plan import CPUS, MEMORY_BYTES, SLOTS
from peerwatch_demo.simulated_node.noise import noise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_demo.simulated_node.scenario import Scenario

# What a scenario may change of the host, and in which unit per second (queues: bytes at a time).
COUNTERS = (
    "tcp_retransmitted",
    "tcp_timeouts",
    "tcp_queue_bytes",
    "pressure_io",
    "storage_drops",
    "memory_corrected",
    "memory_uncorrected",
)
# A made-up host of an H100 node: disks as fast as its NVMe, packets of jumbo frames, and counters
# that have run for two days.
_MEMORY_CONTROLLERS = 4
_READ_BYTES_PER_SECOND = 6e9
_WRITE_BYTES_PER_SECOND = 4e9
_SEGMENT_BYTES = 8900
_HISTORY_SECONDS = 2e5
# The kernel's unit in /proc/diskstats.
_SECTOR_BYTES = 512
_STORAGE = "eth0"
_NET_HEADER = (
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast"
    "|bytes    packets errs drop fifo colls carrier compressed\n"
)


class Machine:
    """CPU, memory, storage and network of the node over time.

    Parameters
    ----------
    scenario
        What happens on the node.
    seed
        Decides the noise.
    onset
        When the scenario's change begins, in seconds after the start.
    boot_time
        Unix time, whole seconds.
    """

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        onset: float,
        boot_time: int,
    ) -> None:
        self._scenario = scenario
        self._seed = seed
        self._onset = onset
        self._boot_time = boot_time
        self._activity = scenario.activity(onset)

    def files(self, seconds: float) -> Mapping[str, str]:
        """Return the files below /proc by path."""
        return {
            "stat": self._stat(seconds),
            "loadavg": self._load(seconds),
            "meminfo": self._memory(seconds),
            "diskstats": self._disks(seconds),
            "net/dev": self._interfaces(seconds),
            **self._tcp(seconds),
            **self._pressure(seconds),
            "sys/kernel/hung_task_detect_count": f"{int(self._hung(seconds))}\n",
        }

    def memory_controllers(self, seconds: float) -> Mapping[str, str]:
        """Return the files of EDAC below /sys by path."""
        files = {}
        for number in range(_MEMORY_CONTROLLERS):
            # One memory module is the weak one.
            weak = number == 1
            base = f"devices/system/edac/mc/mc{number}"
            corrected = 3 * weak + weak * self._more("memory_corrected", seconds)
            files[f"{base}/ce_count"] = f"{int(corrected)}\n"
            uncorrected = weak * self._more("memory_uncorrected", seconds)
            files[f"{base}/ue_count"] = f"{int(uncorrected)}\n"
        return files

    def _more(self, name: str, seconds: float) -> float:
        """Return how much the scenario added to one of ``COUNTERS`` since the onset."""
        return self._scenario.host.get(name, 0.0) * max(0.0, seconds - self._onset)

    def _hung(self, seconds: float) -> bool:
        # The kernel calls a task hung after two minutes.
        return self._scenario.stuck_rank is not None and seconds - self._onset > 122

    def _read_total(self, seconds: float) -> float:
        busy = _HISTORY_SECONDS + self._activity.total("read", seconds)
        return busy * _READ_BYTES_PER_SECOND

    def _write_total(self, seconds: float) -> float:
        busy = _HISTORY_SECONDS / 100 + self._activity.total("write", seconds)
        return busy * _WRITE_BYTES_PER_SECOND

    def _stat(self, seconds: float) -> str:
        busy = 100 * (_HISTORY_SECONDS + self._activity.total("cpu", seconds))
        alive = 100 * (_HISTORY_SECONDS * 4 + seconds)
        ticks = (int(busy * 0.86), 0, int(busy * 0.12), int(alive - busy), int(busy * 0.01), 0)
        columns = (*ticks, int(busy * 0.02), 0, 0, 0)
        lines = [f"cpu  {' '.join(str(CPUS * count) for count in columns)}"]
        row = " ".join(map(str, columns))
        lines += [f"cpu{number} {row}" for number in range(CPUS)]
        switches = 5_000_000_000 + int(busy * 1800)
        stuck = self._scenario.stuck_rank is not None and seconds >= self._onset
        lines += [
            "intr 123456789",
            f"ctxt {switches}",
            f"btime {self._boot_time}",
            f"processes {540_000 + int(seconds * 2)}",
            f"procs_running {1 + int(self._activity.mean('cpu', seconds) * CPUS)}",
            f"procs_blocked {int(stuck)}",
        ]
        return "\n".join(lines) + "\n"

    def _load(self, seconds: float) -> str:
        load = CPUS * self._activity.mean("cpu", seconds, 60.0) + noise(self._seed, "load", 0) * 0.5
        return f"{max(0.0, load):.2f} {load:.2f} {load:.2f} 12/4321 4711\n"

    def _memory(self, seconds: float) -> str:
        has_job = self._scenario.phase is not Phase.HALT or seconds < self._onset
        used = 0.39 if has_job else 0.04
        used += 0.002 * noise(self._seed, "memory", int(seconds / 10))
        total = MEMORY_BYTES // 1024
        available = int(total * (1 - used))
        return (
            f"MemTotal:       {total} kB\nMemFree:        {available // 2} kB\n"
            f"MemAvailable:   {available} kB\nHugePages_Total:       0\n"
        )

    def _disks(self, seconds: float) -> str:
        read = int(self._read_total(seconds) / 10 / _SECTOR_BYTES)
        written = int(self._write_total(seconds) / _SECTOR_BYTES)
        busy = int(1000 * (_HISTORY_SECONDS / 10 + self._activity.total("write", seconds)))
        row = f"{read // 256} 0 {read} {read // 900} {written // 256} 0 {written} {written // 900}"
        return (
            f" 259       0 nvme0n1 {row} 0 {busy} {2 * busy}\n"
            f" 259       1 nvme0n1p1 {row} 0 {busy} {2 * busy}\n"
        )

    def _interfaces(self, seconds: float) -> str:
        received = int(self._read_total(seconds) / 10)
        sent = received // 40
        drops = int(self._more("storage_drops", seconds))
        rows = [("lo", 1_000_000, 0, 1_000_000), (_STORAGE, received, drops, sent)]
        # RDMA passes the kernel by: the interfaces of the NICs see next to nothing.
        rows += [(slot.interface, 52_000 + int(seconds) * 60, 0, 48_000) for slot in SLOTS]
        return _NET_HEADER + "".join(
            f"{name:>6}: {received} {received // 1500} 0 {drops} 0 0 0 0 "
            f"{sent} {sent // 1500} 0 0 0 0 0 0\n"
            for name, received, drops, sent in rows
        )

    def _tcp(self, seconds: float) -> Mapping[str, str]:
        segments = int(self._read_total(seconds) / 10 / _SEGMENT_BYTES)
        again = segments // 200_000 + int(self._more("tcp_retransmitted", seconds))
        timeouts = 17 + int(self._more("tcp_timeouts", seconds))
        queued = 4096 + self._scenario.host.get("tcp_queue_bytes", 0.0) * (seconds >= self._onset)
        socket = f"0A00000A:0801 0A000014:9C40 01 {int(queued):08X}:00000400"
        return {
            "net/snmp": (
                "Ip: Forwarding DefaultTTL\nIp: 1 64\n"
                "Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens InSegs OutSegs RetransSegs "
                f"InErrs OutRsts\nTcp: 1 200 120000 -1 40 {segments} {segments // 3} {again} 0 7\n"
            ),
            "net/netstat": (
                "TcpExt: SyncookiesSent TCPTimeouts TCPLostRetransmit TCPSynRetrans\n"
                f"TcpExt: 0 {timeouts} {again // 20} {timeouts // 4}\n"
                "IpExt: InNoRoutes InOctets\nIpExt: 0 1\n"
            ),
            "net/tcp": (
                "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   "
                f"uid  timeout inode\n   0: {socket} 01:00000014 00000000  1000 0 2 1\n"
            ),
            "net/tcp6": "  sl  local_address remote_address st tx_queue rx_queue\n",
            "net/sockstat": "sockets: used 9\nTCP: inuse 1 orphan 0 tw 0 alloc 3 mem 1\n",
            "net/sockstat6": "TCP6: inuse 0\n",
        }

    def _pressure(self, seconds: float) -> Mapping[str, str]:
        totals = {
            "cpu": 40.0 + 0.002 * self._activity.total("cpu", seconds),
            "io": 90.0 + 0.02 * self._activity.total("read", seconds),
            "memory": 0.0,
        }
        totals["io"] += self._more("pressure_io", seconds)
        return {
            f"pressure/{resource}": "".join(
                f"{kind} avg10=0.00 avg60=0.00 avg300=0.00 total={int(stalled * share * 1e6)}\n"
                for kind, share in (("some", 1.0), ("full", 0.7))
            )
            for resource, stalled in totals.items()
        }
