"""The node's panels about filesystems, Ethernet links, bonds, clock and services."""

from __future__ import annotations

from parts import Panel, beside, graph, properties
from promql import highest, rate


def panels(node: str) -> list[Panel]:
    """Return the panels about the machine below the training.

    Parameters
    ----------
    node
        Label matchers of the node.
    """
    return [
        _filesystems(node),
        _filesystem_state(node),
        _ethernet(node),
        _bonds(node),
        _clock(node),
        _units(node),
    ]


def _used(node: str, left: str, total: str) -> str:
    by = "max by (mountpoint)"
    return f"1 - {by} ({left}{{{node}}}) / {by} ({total}{{{node}}} > 0)"


def _filesystems(node: str) -> Panel:
    return graph(
        "Local filesystems: used",
        "Share of the space, and of the inodes, that is taken. Filesystems of the network are not "
        "asked.",
        "percentunit",
        (
            _used(node, "host_filesystem_available_bytes", "host_filesystem_size_bytes"),
            "{{mountpoint}}",
        ),
        (
            _used(node, "host_filesystem_inodes_free", "host_filesystem_inodes"),
            "{{mountpoint}} inodes",
        ),
    ).no_value("The exporter may not see the node's filesystems.")


def _filesystem_state(node: str) -> Panel:
    return graph(
        "Local filesystems: state",
        "1 while a filesystem refuses writes after an error, or does not answer.",
        "short",
        (
            highest(f"host_filesystem_write_refused{{{node}}}", "mountpoint"),
            "{{mountpoint}} refuses writes",
        ),
        (
            highest(f"host_filesystem_unresponsive{{{node}}}", "mountpoint"),
            "{{mountpoint}} does not answer",
        ),
    ).no_value("The exporter may not see the node's filesystems.")


def _ethernet(node: str) -> Panel:
    return graph(
        "Ethernet errors",
        "Frames lost at the link by kind, and links lost, per second.",
        "short",
        (rate("ethernet_errors_total", node, "interface, kind"), "{{interface}} {{kind}}"),
        (rate("ethernet_carrier_losses_total", node, "interface"), "{{interface}} link lost"),
    ).no_value("There is no Ethernet interface.")


def _bonds(node: str) -> Panel:
    return graph(
        "Bonds",
        "1 while the bond has the link of a slave, and how often each has failed.",
        "short",
        (highest(f"bond_slave_up{{{node}}}", "bond, interface"), "{{bond}} {{interface}}"),
        (
            highest(f"bond_slave_link_failures_total{{{node}}}", "bond, interface"),
            "{{bond}} {{interface}} failures",
        ),
    ).no_value("There is no bond.")


def _clock(node: str) -> Panel:
    panel = graph(
        "Clock",
        "How wrong the clock may be at most, and what is still being corrected; on the right, 1 "
        "while a time service corrects it.",
        "s",
        (f"max(host_clock_error_max_seconds{{{node}}})", "error at most"),
        (f"max(host_clock_offset_seconds{{{node}}})", "offset"),
        (f"max(host_clock_synchronized{{{node}}})", "synchronised"),
        signed=True,
    )
    panel = panel.override_by_query("C", properties(beside("short")))
    return panel.no_value("The clock cannot be asked.")


def _units(node: str) -> Panel:
    return graph(
        "Services",
        "1 while a service that training depends on runs, and units that have failed.",
        "short",
        (highest(f"host_systemd_unit_active{{{node}}}", "unit"), "{{unit}}"),
        (f"max(host_systemd_failed_units{{{node}}})", "failed units"),
        (f"max by (unit) (host_systemd_unit_failed{{{node}}}) > 0", "{{unit}} failed"),
    ).no_value("systemd cannot be asked.")
