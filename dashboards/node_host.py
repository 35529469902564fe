"""The node's rows about its host and about the ranks that run on it."""

from __future__ import annotations

import node_machine
from parts import Panel, areas, graph
from promql import busiest, highest, rate

_PER_SECOND = "[$__rate_interval]"


def panels(node: str) -> list[Panel]:
    """Return the panels about CPU, memory, disks, network and the kernel.

    Parameters
    ----------
    node
        Label matchers of the node.
    """
    graphs = [
        *_load(node),
        *_storage(node),
        *_network(node),
        *_problems(node),
        *node_machine.panels(node),
    ]
    return [panel.span(8) for panel in graphs]


def _load(node: str) -> list[Panel]:
    return [
        areas(
            "CPU",
            "CPUs that were busy in each mode, and how many there are.",
            "short",
            (
                "sum by (mode)"
                f' (rate(host_cpu_seconds_total{{{node}, mode!="idle"}}{_PER_SECOND}))',
                "{{mode}}",
            ),
        ),
        graph(
            "Tasks",
            "Load over a minute against the number of CPUs, tasks that wait for storage, and tasks "
            "that cannot be interrupted. The same number of those for minutes: something hangs.",
            "short",
            (f"max(host_load1{{{node}}})", "load"),
            (f"max(host_cpus{{{node}}})", "CPUs"),
            (f"max(host_blocked_tasks{{{node}}})", "wait for storage"),
            (f"max(host_uninterruptible_tasks{{{node}}})", "not interruptible"),
        ),
        graph(
            "Pressure (PSI)",
            "Share of time in which some, or all (full), runnable tasks stood still for want of a "
            "resource.",
            "percentunit",
            (
                rate("host_pressure_seconds_total", node, "resource, kind", "max"),
                "{{resource}} {{kind}}",
            ),
        ),
        graph(
            "Memory",
            "Memory of the node that is not available, and all there is.",
            "bytes",
            (
                f"max(host_memory_total_bytes{{{node}}})"
                f" - max(host_memory_available_bytes{{{node}}})",
                "in use",
            ),
            (f"max(host_memory_total_bytes{{{node}}})", "there is"),
        ),
    ]


def _storage(node: str) -> list[Panel]:
    return [
        graph(
            "Disk throughput",
            "Read and written, the 20 busiest disks.",
            "binBps",
            (busiest(rate("host_disk_read_bytes_total", node, "disk")), "{{disk}} read"),
            (busiest(rate("host_disk_written_bytes_total", node, "disk")), "{{disk}} written"),
        ),
        graph(
            "Disks busy",
            "Share of time in which a disk had something to do, the 20 busiest.",
            "percentunit",
            (busiest(rate("host_disk_io_seconds_total", node, "disk")), "{{disk}}"),
        ),
    ]


def _network(node: str) -> list[Panel]:
    outside = f'{node}, interface!="lo"'
    directions = ("receive", "transmit")
    return [
        graph(
            "Network throughput",
            "What passes the kernel, by interface, the 20 busiest; RDMA does not.",
            "binBps",
            *(
                (
                    busiest(rate(f"host_network_{direction}_bytes_total", outside, "interface")),
                    f"{{{{interface}}}} {direction}",
                )
                for direction in directions
            ),
        ),
        graph(
            "Network packets, errors and drops",
            "Per second over all interfaces but loopback.",
            "pps",
            *(
                (
                    f"sum(rate(host_network_{direction}_{what}_total{{{outside}}}{_PER_SECOND}))",
                    f"{what} {direction}",
                )
                for what in ("packets", "errors", "drops")
                for direction in directions
            ),
        ),
        graph(
            "TCP",
            "Segments sent, sent again, timers that ran out, and connection requests sent again, "
            "per second: loss, or a peer that does not answer.",
            "pps",
            *(
                (f"max(rate(host_tcp_{metric}_total{{{node}}}{_PER_SECOND}))", legend)
                for metric, legend in (
                    ("sent_segments", "sent"),
                    ("retransmitted_segments", "sent again"),
                    ("timeouts", "timeouts"),
                    ("syn_retransmissions", "requests again"),
                )
            ),
        ),
        graph(
            "TCP queues",
            "Bytes in the queues of established connections: not yet acknowledged, not yet read.",
            "bytes",
            (f"max(host_tcp_send_queue_bytes{{{node}}})", "send queues"),
            (f"max(host_tcp_receive_queue_bytes{{{node}}})", "receive queues"),
        ),
        *_peers(node),
    ]


def _peers(node: str) -> list[Panel]:
    nobody = "No rank on this node sends much over TCP."
    return [
        graph(
            "TCP round trips",
            "There and back to each node that ranks send much to, queues on the way included. High "
            "to all: this node's link is slow, or it is full; high to one, of which others say the "
            "same: that node's.",
            "s",
            (highest(f"host_tcp_round_trip_seconds{{{node}}}", "peer"), "{{peer}}"),
        ).no_value(nobody),
        graph(
            "Shortest TCP round trips",
            "To the same nodes, since the exporter began: what the way takes without queues.",
            "s",
            (highest(f"host_tcp_least_round_trip_seconds{{{node}}}", "peer"), "{{peer}}"),
        ).no_value(nobody),
        graph(
            "Sent to other nodes over TCP",
            "What arrives at each node that ranks send much to.",
            "binBps",
            (busiest(rate("host_tcp_acknowledged_bytes_total", node, "peer")), "{{peer}}"),
        ).no_value(nobody),
    ]


def _problems(node: str) -> list[Panel]:
    return [
        graph(
            "Kernel log",
            "Signs of problems by class since the log's oldest line; a step up is a new one.",
            "short",
            (f"max by (class) (host_kernel_events_total{{{node}}})", "{{class}}"),
            (f"max(host_hung_tasks_total{{{node}}})", "hung tasks"),
        ),
        graph(
            "Memory errors (EDAC)",
            "By memory controller and severity since its driver was loaded. One uncorrected error: "
            "data was lost.",
            "short",
            (
                highest(f"host_edac_errors_total{{{node}}}", "controller, severity"),
                "{{controller}} {{severity}}",
            ),
        ).no_value("No EDAC driver knows the memory controllers."),
    ]


def ranks(members: str) -> list[Panel]:
    """Return the panels about the ranks on the node.

    Parameters
    ----------
    members
        Label matchers of the node and the training jobs.
    """
    graphs = [*_progress(members), *_processes(members)]
    return [panel.span(8) for panel in graphs]


def _progress(members: str) -> list[Panel]:
    rank = "rank {{rank}}"
    return [
        graph(
            "Heartbeat age",
            "Time since each rank gave a sign of life.",
            "s",
            (f"time() - max by (rank) (rank_heartbeat_timestamp_seconds{{{members}}})", rank),
        ),
        graph(
            "Steps per second",
            "Optimiser steps of each rank.",
            "short",
            (rate("rank_steps_total", members, "rank"), rank),
        ),
        areas(
            "Process states",
            "Ranks by the state of their main process.",
            "short",
            (f"sum by (state) (rank_process_state{{{members}}})", "{{state}}"),
        ),
    ]


def _processes(members: str) -> list[Panel]:
    rank = "rank {{rank}}"
    return [
        graph(
            "CPU of ranks",
            "CPUs each rank used, its descendants included. One rank far below the others waits.",
            "short",
            (rate("rank_cpu_seconds_total", members, "rank"), rank),
        ),
        graph(
            "Waiting for a CPU",
            "Share of time in which a rank's main threads were ready to run and got no CPU.",
            "percentunit",
            (rate("rank_run_delay_seconds_total", members, "rank"), rank),
        ),
        graph(
            "Resident memory of ranks",
            "Shared pages count for each process.",
            "bytes",
            (f"max by (rank) (rank_memory_resident_bytes{{{members}}})", rank),
        ),
        graph(
            "Storage of ranks",
            "Bytes read from and written to storage per second, over the node's ranks.",
            "binBps",
            (f"sum(rate(rank_read_bytes_total{{{members}}}{_PER_SECOND}))", "read"),
            (f"sum(rate(rank_written_bytes_total{{{members}}}{_PER_SECOND}))", "written"),
        ),
        graph(
            "Context switches of ranks",
            "Per second over the node's ranks: voluntary ones waited, involuntary ones were pushed "
            "off the CPU by something else.",
            "short",
            (rate("rank_context_switches_total", members, "kind"), "{{kind}}"),
        ),
        graph(
            "Processes and threads of ranks",
            "Over the node's ranks. A number that falls: a worker process has ended.",
            "short",
            (f"sum(rank_processes{{{members}}})", "processes"),
            (f"sum(rank_threads{{{members}}})", "threads"),
            (f"count(rank_info{{{members}}})", "ranks"),
        ),
    ]
