"""Builds the files of a training node: 8 NICs, 8 GPUs, 64 CPUs, 1,000 processes.

Real files below one directory, laid out as the kernel lays out /sys and /proc, complete enough for
this exporter and for node_exporter (``--path.sysfs``, ``--path.procfs``). Everything follows from
the arguments: two trees built alike are equal.

    python tests/bench/host_tree.py DIRECTORY
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from bench.prepared_statistics import NICS, PreparedStatistics
from procfs_tree import BOOT_TIME, ProcTree

_COUNTERS = (
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
)
_HW_COUNTERS = (
    "duplicate_request",
    "implied_nak_seq_err",
    "lifespan",
    "local_ack_timeout_err",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "req_cqe_error",
    "req_cqe_flush_error",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "resp_local_length_error",
    "resp_remote_access_errors",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_slow_restart",
    "roce_slow_restart_cnps",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "rx_icrc_encapsulated",
    "rx_read_requests",
    "rx_write_requests",
)
_CORRECTABLE = (
    "RxErr",
    "BadTLP",
    "BadDLLP",
    "Rollover",
    "Timeout",
    "NonFatalErr",
    "CorrIntErr",
    "HeaderOF",
)
_UNCORRECTABLE = (
    "Undefined",
    "DLP",
    "SDES",
    "TLP",
    "FCP",
    "CmpltTO",
    "CmpltAbrt",
    "UnxCmplt",
    "RxOF",
    "MalfTLP",
    "ECRC",
    "UnsupReq",
    "ACSViol",
    "UncorrIntErr",
    "BlockedTLP",
    "AtomicOpBlocked",
    "TLPBlockedErr",
    "PoisonTLPBlocked",
)
_SNMP = """\
Ip: Forwarding DefaultTTL InReceives
Ip: 1 64 777000
Icmp: InMsgs InErrors
Icmp: 12 0
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens CurrEstab InSegs OutSegs RetransSegs InErrs OutRsts
Tcp: 1 200 120000 -1 40 30 420 90000 80000 123 0 7
Udp: InDatagrams NoPorts InErrors OutDatagrams
Udp: 100 2 0 90
"""  # noqa: E501
_EXTENDED = """\
SyncookiesSent SyncookiesRecv SyncookiesFailed EmbryonicRsts PruneCalled RcvPruned OfoPruned TW
TWRecycled TWKilled PAWSActive PAWSEstab DelayedACKs DelayedACKLocked DelayedACKLost
ListenOverflows ListenDrops TCPHPHits TCPPureAcks TCPHPAcks TCPRenoRecovery TCPSackRecovery
TCPSACKReneging TCPSACKReorder TCPRenoReorder TCPTSReorder TCPFullUndo TCPPartialUndo
TCPDSACKUndo TCPLossUndo TCPLostRetransmit TCPRenoFailures TCPSackFailures TCPLossFailures
TCPFastRetrans TCPSlowStartRetrans TCPTimeouts TCPLossProbes TCPLossProbeRecovery
TCPRcvCollapsed TCPDSACKOldSent TCPDSACKOfoSent TCPDSACKRecv TCPAbortOnData TCPAbortOnTimeout
TCPMemoryPressures TCPSynRetrans TCPOrigDataSent TCPKeepAlive
"""


@dataclass(frozen=True, slots=True)
class HostTree:
    """A node's files below ``root``: ``sys`` and ``proc``.

    Parameters
    ----------
    root
        Empty or missing directory.
    nics, gpus, nvswitches, cpus, processes, sockets
        How many there are; each NIC shares a PCIe switch with the GPU of its number.
    """

    root: Path
    nics: int = NICS
    gpus: int = 8
    nvswitches: int = 4
    cpus: int = 64
    processes: int = 1000
    sockets: int = 400

    @property
    def sysfs(self) -> Path:
        """Where the node's /sys is."""
        return self.root / "sys"

    @property
    def procfs(self) -> Path:
        """Where the node's /proc is."""
        return self.root / "proc"

    def build(self) -> HostTree:
        """Write everything; return this tree."""
        for number in range(max(self.gpus, self.nics)):
            self._switch(number)
        for number in range(self.nvswitches):
            self._nvswitch(number)
        for controller in range(8):
            self._edac(controller)
        for cpu in range(self.cpus):
            self._write(f"sys/devices/system/cpu/cpu{cpu}/topology/core_id", f"{cpu}\n")
        self._machine()
        self._network()
        self._processes()
        return self

    def gpu_address(self, number: int) -> str:
        """Return the PCI address of a GPU as sysfs writes it."""
        return f"0000:{_bus(number) + 3:02x}:00.0"

    def ethtool(self) -> PreparedStatistics:
        """Return driver statistics for each NIC's interface."""
        return PreparedStatistics(self.nics)

    def _switch(self, number: int) -> None:
        bus = _bus(number)
        path = f"pci0000:{bus:02x}"
        numa = 0 if number < 4 else 1
        for address, device in (
            (f"0000:{bus:02x}:01.0", "0x352a"),
            (f"0000:{bus + 1:02x}:00.0", "0xc030"),
        ):
            path += f"/{address}"
            self._function(path, "0x060400", "0x8086", device, numa)
        upstream = path
        if number < self.gpus:
            path = f"{upstream}/0000:{bus + 2:02x}:00.0"
            self._function(path, "0x060400", "0x1000", "0xc030", numa)
            path += f"/{self.gpu_address(number)}"
            self._function(path, "0x030200", "0x10de", "0x2330", numa)
        if number < self.nics:
            path = f"{upstream}/0000:{bus + 2:02x}:01.0"
            self._function(path, "0x060400", "0x1000", "0xc030", numa)
            path += f"/0000:{bus + 4:02x}:00.0"
            self._function(path, "0x020700", "0x15b3", "0x1021", numa)
            self._nic(number, path)

    def _nvswitch(self, number: int) -> None:
        path = f"pci0000:c0/0000:c0:0{number + 1}.0"
        self._function(path, "0x060400", "0x8086", "0x352a", 1)
        path += f"/0000:{0xC1 + number:02x}:00.0"
        self._function(path, "0x068000", "0x10de", "0x22a3", 1)

    def _function(self, path: str, code: str, vendor: str, device: str, numa: int) -> None:
        base = f"sys/devices/{path}"
        files = {
            "class": code,
            "vendor": vendor,
            "device": device,
            "subsystem_vendor": vendor,
            "subsystem_device": device,
            "revision": "0xa1",
            "numa_node": str(numa),
            "d3cold_allowed": "1",
            "power_state": "D0",
            "current_link_speed": "32.0 GT/s PCIe",
            "max_link_speed": "32.0 GT/s PCIe",
            "current_link_width": "16",
            "max_link_width": "16",
            "aer_dev_correctable": _aer(_CORRECTABLE, "COR"),
            "aer_dev_nonfatal": _aer(_UNCORRECTABLE, "NONFATAL"),
            "aer_dev_fatal": _aer(_UNCORRECTABLE, "FATAL"),
        }
        for name, text in files.items():
            self._write(f"{base}/{name}", f"{text}\n")
        self._link(f"sys/bus/pci/devices/{path.rpartition('/')[2]}", base)

    def _nic(self, number: int, path: str) -> None:
        function = f"sys/devices/{path}"
        device = f"{function}/infiniband/mlx5_{number}"
        self._link(f"sys/class/infiniband/mlx5_{number}", device)
        self._link(f"{device}/device", function)
        for name, text in (
            ("fw_ver", "28.39.2048"),
            ("board_id", "MT_0000000838"),
            ("hca_type", "MT4129"),
            ("node_guid", "a088:c203:00ab:0000"),
            ("node_type", "1: CA"),
            ("sys_image_guid", "a088:c203:00ab:0000"),
        ):
            self._write(f"{device}/{name}", f"{text}\n")
        port = f"{device}/ports/1"
        for name, text in (
            ("state", "4: ACTIVE"),
            ("phys_state", "5: LinkUp"),
            ("rate", "400 Gb/sec (4X NDR)"),
            ("link_layer", "Ethernet"),
            ("lid", "0x0"),
            ("sm_lid", "0x0"),
            ("cap_mask", "0x00010000"),
            ("gid_attrs/ndevs/0", f"eth{number}"),
        ):
            self._write(f"{port}/{name}", f"{text}\n")
        for directory, names in (("counters", _COUNTERS), ("hw_counters", _HW_COUNTERS)):
            for at, name in enumerate(names):
                value = 1_000_000_007 * (at + 1) + number if name.startswith("port_") else at
                self._write(f"{port}/{directory}/{name}", f"{value}\n")
        self._interface(f"{function}/net/eth{number}", number)
        self._link(f"sys/class/net/eth{number}", f"{function}/net/eth{number}")

    def _interface(self, base: str, number: int) -> None:
        for name, text in (
            ("address", f"a0:88:c2:ab:00:{number:02x}"),
            ("addr_assign_type", "0"),
            ("carrier", "1"),
            ("carrier_changes", "2"),
            ("dev_id", "0x0"),
            ("dev_port", "0"),
            ("flags", "0x1003"),
            ("ifindex", str(number + 2)),
            ("iflink", str(number + 2)),
            ("mtu", "9000"),
            ("operstate", "up"),
            ("speed", "400000"),
            ("tx_queue_len", "1000"),
            ("type", "1"),
        ):
            self._write(f"{base}/{name}", f"{text}\n")

    def _edac(self, controller: int) -> None:
        base = f"sys/devices/system/edac/mc/mc{controller}"
        for name, value in (
            ("ce_count", controller),
            ("ce_noinfo_count", 0),
            ("ue_count", 0),
            ("ue_noinfo_count", 0),
        ):
            self._write(f"{base}/{name}", f"{value}\n")

    def _machine(self) -> None:
        times = "{user} 20 {system} {idle} 1000 0 200 300 0 0".format
        lines = [f"cpu  {times(user=64000, system=6400, idle=640000)}"]
        lines += [
            f"cpu{cpu} {times(user=1000 + cpu, system=100, idle=10000)}" for cpu in range(self.cpus)
        ]
        lines += [
            f"intr 123456789 {' '.join('0' if at % 3 else str(at) for at in range(3000))}",
            "ctxt 987654321",
            f"btime {BOOT_TIME}",
            "processes 54321",
            "procs_running 33",
            "procs_blocked 2",
            "softirq 999 1 2 3 4 5 6 7 8 9 10",
        ]
        disks = "".join(
            f" 259 {at} nvme{at}n1 {1000 + at} 0 {200000 + at} 30 400 0 50000 60 0 70 80\n"
            f" 259 {at} nvme{at}n1p1 10 0 20 3 4 0 6 7 0 8 9\n"
            for at in range(8)
        )
        proc = ProcTree(self.procfs).machine(disks=disks, pressure=True)
        proc.write("stat", "\n".join(lines) + "\n")
        kinds = [f"Kind{number}" for number in range(44)]
        values = {"MemTotal": 2_000_000_000, "MemFree": 900_000_000, "MemAvailable": 1_500_000_000}
        values |= {kind: 1000 + at for at, kind in enumerate(kinds)}
        proc.write("meminfo", "".join(f"{name}: {value} kB\n" for name, value in values.items()))
        proc.write("sys/kernel/hung_task_detect_count", "0\n")
        proc.write("sys/fs/file-nr", "5000\t0\t9223372036854775807\n")
        proc.write("vmstat", "pgpgin 1\npgpgout 2\npswpin 0\npswpout 0\npgfault 9\noom_kill 0\n")
        proc.write("cpuinfo", "".join(f"processor\t: {cpu}\n\n" for cpu in range(self.cpus)))

    def _network(self) -> None:
        proc = ProcTree(self.procfs)
        rows = [
            f"  eth{n}: {5000 + n} 4000 0 0 0 0 0 5 {7000 + n} 6000 0 0 0 0 0 0"
            for n in range(self.nics)
        ]
        rows += ["    lo: 1000 10 0 0 0 0 0 0 1000 10 0 0 0 0 0 0"]
        head = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n"
        proc.write("net/dev", head + "\n".join(rows) + "\n")
        proc.write("net/snmp", _SNMP)
        proc.write("net/snmp6", "Ip6InReceives 1\nIp6OutRequests 2\n")
        names = _EXTENDED.split()
        counts = " ".join(str(at) for at, _ in enumerate(names))
        proc.write(
            "net/netstat",
            f"TcpExt: {' '.join(names)}\nTcpExt: {counts}\n"
            "IpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 5007000 5008000\n",
        )
        sockets = "".join(
            f"{at:4d}: 0100007F:{at + 4096:04X} 0100007F:9C40 01 00000000:00000000 "
            f"01:00000014 00000000     0        0 {at} 1\n"
            for at in range(self.sockets)
        )
        proc.write("net/tcp", "  sl  local_address rem_address   st tx_queue rx_queue\n" + sockets)
        proc.write("net/sockstat", f"sockets: used 900\nTCP: inuse {self.sockets} orphan 0 tw 0\n")
        proc.write("net/sockstat6", "TCP6: inuse 0\n")

    def _processes(self) -> None:
        """Write eight ranks with three helpers each, and services for the rest."""
        proc = ProcTree(self.procfs)
        for at in range(self.processes):
            pid = 1000 + at
            rank = at // 4 if at < 32 else None
            environment = {"PATH": "/usr/bin", "LANG": "C.UTF-8"}
            if rank is not None:
                environment |= {
                    "RANK": str(rank),
                    "WORLD_SIZE": "1024",
                    "LOCAL_RANK": str(rank),
                    "SLURM_JOB_ID": "4711",
                }
            proc.process(
                pid,
                environment,
                name="python3" if rank is not None else f"service{at}",
                parent=pid - at % 4 if rank is not None and at % 4 else 1,
                start=1000 + at,
                user=at,
                resident_kb=1000,
                image=0x7FFC_0000_0000 + at,
            )
            job = "/slurm/uid_1000/job_4711/step_0" if rank is not None else "/system.slice"
            proc.write(f"{pid}/cgroup", f"0::{job}\n")

    def _write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def _link(self, name: str, target: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        place = self.root / target
        # As the kernel writes it: the last part is the target's name, even of a folder above.
        path.symlink_to(f"{os.path.relpath(place.parent, path.parent)}/{place.name}")


def _bus(number: int) -> int:
    return 0x10 * (number % 8) + 0x08 * (number // 8) + 0x10


def _aer(names: tuple[str, ...], total: str) -> str:
    return "\n".join([*(f"{name} 0" for name in names), f"TOTAL_ERR_{total} 0"])


def main() -> None:
    """Build a tree in the directory given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    tree = HostTree(parser.parse_args().directory).build()
    print(f"--path.sysfs={tree.sysfs} --path.procfs={tree.procfs}")


if __name__ == "__main__":
    main()
