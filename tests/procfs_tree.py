"""Writes small /proc trees: files of a machine and its processes as the kernel shows them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BOOT_TIME = 1_767_225_600

_STAT = f"""\
cpu  400000 100 100000 2000000 1000 0 200 300 0 0
cpu0 200000 50 50000 1000000 500 0 100 150 0 0
cpu1 200000 50 50000 1000000 500 0 100 150 0 0
intr 123456
ctxt 987654321
btime {BOOT_TIME}
processes 54321
procs_running 3
procs_blocked 0
"""
_MEMINFO = """\
MemTotal:       16384000 kB
MemFree:         1024000 kB
MemAvailable:    8192000 kB
HugePages_Total:       0
"""
_NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    1000      10    0    0    0     0          0         0     1000      10    0    0    0     0       0          0
  eth0: 5000000    4000    1    2    0     0          0         5  7000000    6000    3    4    0     0       0          0
"""  # noqa: E501
_SNMP = """\
Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens InSegs OutSegs RetransSegs InErrs OutRsts
Tcp: 1 200 120000 -1 40 90000 80000 123 0 7
"""
_NETSTAT = """\
TcpExt: SyncookiesSent TCPTimeouts TCPLostRetransmit
TcpExt: 0 17 2
IpExt: InNoRoutes InOctets
IpExt: 0 5007000
"""
_TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:24B8 00000000:0000 0A 00000000:00000007 00:00000000 00000000     0        0 1 1
   1: 0100007F:24B8 0100007F:9C40 01 00000100:00000010 01:00000014 00000000     0        0 2 1
"""
_TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue
   0: 00000000000000000000000001000000:24B8 00000000000000000000000001000000:9C40 01 00000200:00000020 00:00000000
"""  # noqa: E501


class ProcTree:
    """A /proc tree below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def machine(self, *, disks: str = "", pressure: bool = False) -> ProcTree:
        """Write the machine-wide files of an ordinary host."""
        files = {
            "stat": _STAT,
            "meminfo": _MEMINFO,
            "loadavg": "1.50 0.70 0.30 2/345 6789\n",
            "diskstats": disks,
            "net/dev": _NET_DEV,
            "net/snmp": _SNMP,
            "net/netstat": _NETSTAT,
            "net/tcp": _TCP,
            "net/tcp6": _TCP6,
            "net/sockstat": "sockets: used 9\nTCP: inuse 2 orphan 0 tw 0 alloc 3 mem 1\n",
            "net/sockstat6": "TCP6: inuse 1\n",
        }
        if pressure:
            for resource, micros in (("cpu", 1_500_000), ("io", 2_500_000), ("memory", 0)):
                files[f"pressure/{resource}"] = (
                    f"some avg10=0.00 avg60=0.00 avg300=0.00 total={micros}\n"
                    f"full avg10=0.00 avg60=0.00 avg300=0.00 total={micros // 2}\n"
                )
        for name, text in files.items():
            self.write(name, text)
        return self

    def write(self, name: str, text: str) -> None:
        """Write one file below the root."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def process(
        self,
        pid: int,
        environment: Mapping[str, str] | None = None,
        *,
        name: str = "python3",
        parent: int = 1,
        state: str = "S",
        user: int = 0,
        system: int = 0,
        waited: int = 0,
        threads: int = 1,
        start: int = 1000,
        resident_kb: int = 0,
        read: int = 0,
        written: int = 0,
        voluntary: int = 0,
        involuntary: int = 0,
        run_delay: int = 0,
        image: int = 0,
    ) -> None:
        """Write one process; times in ticks of 10 ms, the delay in nanoseconds.

        ``waited`` is the user time of the children that it has waited for.
        ``image`` is where its environment begins; 0 if the kernel does not say.
        """
        environment = environment or {}
        self.write(
            f"{pid}/stat",
            f"{pid} ({name}) {state} {parent} {pid} {pid} 0 -1 4194560 100 0 0 0 {user} {system} "
            f"{waited} 0 20 0 {threads} 0 {start} 1000000 250 18446744073709551615 "
            f"0 0 0 0 0 0 0 0 0 0 0 0 17 3 0 0 0 0 0 0 0 0 0 0 {image} {image and image + 512} 0\n",
        )
        self.write(
            f"{pid}/status",
            f"Name:\t{name}\nState:\t{state}\nVmRSS:\t{resident_kb:8d} kB\nThreads:\t{threads}\n"
            f"voluntary_ctxt_switches:\t{voluntary}\n"
            f"nonvoluntary_ctxt_switches:\t{involuntary}\n",
        )
        self.write(f"{pid}/io", f"rchar: 1\nwchar: 1\nread_bytes: {read}\nwrite_bytes: {written}\n")
        self.write(f"{pid}/schedstat", f"5000000 {run_delay} 12\n")
        self.write(
            f"{pid}/environ", "".join(f"{key}={value}\0" for key, value in environment.items())
        )

    def end(self, pid: int) -> None:
        """Remove a process."""
        shutil.rmtree(self.root / str(pid))
