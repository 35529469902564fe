"""What the node itself does: CPU, memory, storage, network, TCP."""

from __future__ import annotations

from peerwatch_common.metrics.spec import MetricSpec

_PER_PROCESS = "with scope 'processes', the sum over the node's processes"


def _network(direction: str, what: str, column: str) -> MetricSpec:
    return MetricSpec(
        f"host_network_{direction}_{what}_total",
        "counter",
        "bytes" if what == "bytes" else "1",
        ("interface",),
        f"Network interface: {what} in {direction} direction.",
        f"/proc/net/dev, {direction} column {column}",
    )


SPECS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "host_cpu_seconds_total",
        "counter",
        "seconds",
        ("mode",),
        f"CPU time spent in each mode; {_PER_PROCESS} (user, system).",
        "/proc/stat cpu; /proc/<pid>/stat utime, stime",
    ),
    MetricSpec(
        "host_cpus",
        "gauge",
        "1",
        (),
        "CPUs of the node: those of the machine, or scope.cpus where it is set.",
        "/proc/stat cpuN; scope.cpus",
    ),
    MetricSpec(
        "host_load1",
        "gauge",
        "1",
        (),
        "Load average over one minute: tasks that run, wait for a CPU or for storage.",
        "/proc/loadavg",
    ),
    MetricSpec(
        "host_blocked_tasks",
        "gauge",
        "1",
        (),
        "Tasks that wait for storage right now (iowait). Those stuck elsewhere in the kernel are "
        "in host_uninterruptible_tasks.",
        "/proc/stat procs_blocked",
    ),
    MetricSpec(
        "host_uninterruptible_tasks",
        "gauge",
        "1",
        (),
        "Processes whose main thread cannot be interrupted (state D): it waits for storage, a "
        "network file system or a driver. Some for a moment are normal; the same number for "
        "minutes is a driver or file system that hangs, and such a process cannot be killed.",
        "/proc/<pid>/stat state",
    ),
    MetricSpec(
        "host_hung_tasks_total",
        "counter",
        "1",
        (),
        "Times the kernel found a task that had not moved for kernel.hung_task_timeout_secs "
        "(120 s). On older kernels see class hung_task of host_kernel_events_total.",
        "/proc/sys/kernel/hung_task_detect_count",
        hardware="Linux 6.13",
    ),
    MetricSpec(
        "host_edac_errors_total",
        "counter",
        "1",
        ("controller", "severity"),
        "Memory errors by memory controller. Severity corrected: many from one controller "
        "announce a failing module. Severity uncorrected: data was lost, replace the module. "
        "Firmware that handles errors by itself reports them in the kernel log instead (class "
        "apei of host_kernel_events_total).",
        "/sys/devices/system/edac/mc/mc*/{ce_count,ue_count}",
        hardware="EDAC driver",
    ),
    MetricSpec(
        "host_context_switches_total",
        "counter",
        "1",
        (),
        "Context switches of the whole machine.",
        "/proc/stat ctxt",
    ),
    MetricSpec(
        "host_boot_time_seconds",
        "gauge",
        "seconds",
        (),
        "When the machine was started (Unix time).",
        "/proc/stat btime",
    ),
    MetricSpec(
        "host_pressure_seconds_total",
        "counter",
        "seconds",
        ("resource", "kind"),
        "Time in which some or all (full) runnable tasks stood still for want of the resource.",
        "/proc/pressure/{cpu,io,memory} total",
        hardware="Linux 4.20",
    ),
    MetricSpec(
        "host_memory_total_bytes",
        "gauge",
        "bytes",
        (),
        "Memory of the node: that of the machine, or scope.memory_bytes where it is set.",
        "/proc/meminfo MemTotal; scope.memory_bytes",
    ),
    MetricSpec(
        "host_memory_available_bytes",
        "gauge",
        "bytes",
        (),
        "Memory that can be had without swapping; with scope 'processes', the total less the "
        "resident memory of the node's processes.",
        "/proc/meminfo MemAvailable; /proc/<pid>/status VmRSS",
    ),
    MetricSpec(
        "host_disk_read_bytes_total",
        "counter",
        "bytes",
        ("disk",),
        f"Bytes read from the disk; {_PER_PROCESS} as disk 'processes'.",
        "/proc/diskstats sectors read; /proc/<pid>/io read_bytes",
    ),
    MetricSpec(
        "host_disk_written_bytes_total",
        "counter",
        "bytes",
        ("disk",),
        f"Bytes written to the disk; {_PER_PROCESS} as disk 'processes'.",
        "/proc/diskstats sectors written; /proc/<pid>/io write_bytes",
    ),
    MetricSpec(
        "host_disk_io_seconds_total",
        "counter",
        "seconds",
        ("disk",),
        "Time in which the disk had at least one request to serve.",
        "/proc/diskstats time spent doing I/Os",
    ),
    _network("receive", "bytes", "bytes"),
    _network("receive", "packets", "packets"),
    _network("receive", "errors", "errs"),
    _network("receive", "drops", "drop"),
    _network("transmit", "bytes", "bytes"),
    _network("transmit", "packets", "packets"),
    _network("transmit", "errors", "errs"),
    _network("transmit", "drops", "drop"),
    MetricSpec(
        "host_tcp_retransmitted_segments_total",
        "counter",
        "1",
        (),
        "TCP segments sent again because no acknowledgement came: loss or a stalled peer.",
        "/proc/net/snmp Tcp RetransSegs",
    ),
    MetricSpec(
        "host_tcp_sent_segments_total",
        "counter",
        "1",
        (),
        "TCP segments sent, without those sent again.",
        "/proc/net/snmp Tcp OutSegs",
    ),
    MetricSpec(
        "host_tcp_timeouts_total",
        "counter",
        "1",
        (),
        "TCP retransmission timers that ran out.",
        "/proc/net/netstat TcpExt TCPTimeouts",
    ),
    MetricSpec(
        "host_tcp_syn_retransmissions_total",
        "counter",
        "1",
        (),
        "TCP connection requests sent again because no answer came: the peer or the way to it is "
        "down.",
        "/proc/net/netstat TcpExt TCPSynRetrans",
    ),
    MetricSpec(
        "host_tcp_send_queue_bytes",
        "gauge",
        "bytes",
        (),
        "Bytes in the send queues of established connections: written, not yet acknowledged. "
        "Mean of the last mean_seconds; read every second, or less often where listing the "
        "sockets takes the kernel long.",
        "/proc/net/tcp and tcp6, tx_queue",
        swings=True,
    ),
    MetricSpec(
        "host_tcp_receive_queue_bytes",
        "gauge",
        "bytes",
        (),
        "Bytes in the receive queues of established connections: arrived, not yet read by the "
        "application. Mean and read as the send queues.",
        "/proc/net/tcp and tcp6, rx_queue",
        swings=True,
    ),
    MetricSpec(
        "host_kernel_events_total",
        "counter",
        "1",
        ("class",),
        "Signs of trouble in the kernel log since its oldest line, each class from 0: mlx5 (NIC "
        "health, cable, power, queues, link down), mce (machine checks, corrected ones too, and "
        "uncorrected memory errors), hung_task (stuck tasks and CPUs), oom (processes killed), "
        "nvlink (links that did not train), apei (firmware error reports). What happened to one "
        "device within 5 s counts once.",
        "/dev/kmsg",
    ),
)
