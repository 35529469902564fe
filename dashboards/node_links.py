"""The node's row about NVLink and PCIe: traffic, states, errors."""

from __future__ import annotations

from parts import Panel, graph, properties, rows
from promql import busiest, highest, rate

_GPU = "GPU {{gpu}}"


def panels(node: str) -> list[Panel]:
    """Return the panels about NVLink and PCIe.

    Parameters
    ----------
    node
        Label matchers of the node.
    """
    return [
        *_nvlink(node),
        *(panel.span(8) for panel in _pcie(node)),
        _links(node),
    ]


def _nvlink(node: str) -> list[Panel]:
    sent, received = (
        rate(f"nvlink_{direction}_bytes_total", node, "gpu", "max")
        for direction in ("transmit", "receive")
    )
    raw = " + ".join(
        f"sum(rate(nvlink_raw_{direction}_bytes_total{{{node}}}[$__rate_interval]))"
        for direction in ("transmit", "receive")
    )
    return [
        graph(
            "NVLink throughput",
            "Payload sent and received over all links of each GPU. One GPU below the others: a "
            "link is down, slow or repeats.",
            "binBps",
            (f"{sent} + {received}", _GPU),
        ),
        graph(
            "NVLink of the whole node",
            "All GPUs together: what the links carried with the protocol's own part, the payload, "
            "and what all links could carry in both directions.",
            "binBps",
            (raw, "with protocol"),
            (
                f"sum(rate(nvlink_transmit_bytes_total{{{node}}}[$__rate_interval]))"
                f" + sum(rate(nvlink_receive_bytes_total{{{node}}}[$__rate_interval]))",
                "payload",
            ),
            (f"2 * sum(nvlink_speed_bytes_per_second{{{node}}})", "possible"),
        ),
        graph(
            "NVLink errors per second",
            "By GPU, link and type; the 20 that counted most. Replays cost time; a link that makes "
            "CRC errors and recovers is about to fail. Recoveries are Blackwell's.",
            "short",
            (
                busiest(rate("nvlink_errors_total", node, "gpu, link, type")),
                "GPU {{gpu}} link {{link}} {{type}}",
            ),
            (
                busiest(rate("nvlink_link_recoveries_total", node, "gpu, link, result")),
                "GPU {{gpu}} link {{link}} recovery {{result}}",
            ),
        ),
        graph(
            "NVLink bit errors",
            "Share of bits that arrive wrong, the 20 worst links; symbol: before a repeat could "
            "help. Blackwell only.",
            "sci",
            (
                highest(f"nvlink_bit_error_ratio{{{node}}}", "gpu, link, kind"),
                "GPU {{gpu}} link {{link}} {{kind}}",
            ),
        ).no_value("Blackwell only"),
    ]


def _pcie(node: str) -> list[Panel]:
    counted = " + ".join(
        rate(f"gpu_pcie_{direction}_bytes_total", node, "gpu", "max")
        for direction in ("transmit", "receive")
    )
    sampled = " + ".join(
        f"max by (gpu) (gpu_pcie_{direction}_bytes_per_second{{{node}}})"
        for direction in ("transmit", "receive")
    )
    return [
        graph(
            "PCIe throughput of GPUs",
            "Sent and received; from the driver's byte counter where it has one, else its own "
            "mean.",
            "binBps",
            (f"{counted} or {sampled}", _GPU),
        ),
        graph(
            "PCIe errors of GPUs per second",
            "By GPU and type, the 20 that counted most, as the GPU counts them. Replays lose "
            "nothing but time; many mean a bad contact or riser.",
            "short",
            (
                busiest(rate("gpu_pcie_errors_total", node, "gpu, type")),
                "GPU {{gpu}} {{type}}",
            ),
            (rate("gpu_pcie_replays_total", node, "gpu"), "GPU {{gpu}} replays"),
        ),
        graph(
            "PCIe error reports per second (AER)",
            "By device, severity and type, the 20 that counted most, as the kernel counts them. A "
            "device and the port above it that both count: the link between them.",
            "short",
            (
                busiest(rate("pcie_aer_errors_total", node, "bdf, severity, type")),
                "{{bdf}} {{severity}} {{type}}",
            ),
        ),
    ]


def _links(node: str) -> Panel:
    device = "bdf, kind, parent, numa_node"
    info = f"max by ({device}) (pcie_device_info{{{node}}})"
    columns = {
        "bdf": "Device",
        "kind": "Kind",
        "parent": "Below",
        "numa_node": "NUMA",
        "Value #A": "Transfers per second",
        "Value #B": "It allows",
        "Value #C": "Lanes",
        "Value #D": "Lanes it allows",
        "Value #E": "Correctable errors",
        "Value #F": "Fatal errors",
    }

    def of(metric: str, extra: str = "", aggregate: str = "max") -> str:
        value = f"{aggregate} by (bdf) ({metric}{{{node}{extra}}})"
        return f"{info} * on (bdf) group_left () {value}"

    rates = {"unit": "si:T/s"}
    return (
        rows(
            "PCIe links",
            "The link above every GPU, NIC, NVSwitch and bridge. Fewer lanes or a lower speed than "
            "both ends allow: a contact, a riser or a cable. Errors count since the device was "
            "found by the kernel.",
            columns,
            of("pcie_link_speed_transfers_per_second"),
            of("pcie_link_speed_max_transfers_per_second"),
            of("pcie_link_width_lanes"),
            of("pcie_link_width_lanes_max"),
            of("pcie_aer_errors_total", ', severity="correctable"', "sum"),
            of("pcie_aer_errors_total", ', severity="fatal"', "sum"),
        )
        .no_value("No GPU or NIC on PCIe.")
        .override_by_name("Transfers per second", properties(rates))
        .override_by_name("It allows", properties(rates))
    )
