"""The node's rows about its GPUs: how they work, how warm they are, how sound their memory is."""

from __future__ import annotations

from parts import GREEN, RED, Panel, Query, graph, properties, rows, value_map


def panels(node: str) -> list[Panel]:
    """Return the graphs of the GPUs' work.

    Parameters
    ----------
    node
        Label matchers of the node.
    """
    return [panel.span(8) for panel in (*_work(node), *_limits(node), *_use(node))]


def _of(metric: str, node: str, extra: str = "") -> Query:
    """Return a metric of each GPU."""
    return f"max by (gpu) ({metric}{{{node}{extra}}})", "GPU {{gpu}}"


def _work(node: str) -> list[Panel]:
    return [
        graph(
            "Tensor cores at work",
            "Share of time with work in the tensor cores: the nearest to how fast it trains. "
            "Hopper and later.",
            "percentunit",
            _of("gpu_tensor_active_ratio", node),
        ).max(1),
        graph(
            "Utilisation",
            "Share of time with a kernel running; it says nothing about how busy the kernel "
            "was. High with idle tensor cores: the rank waits in a collective.",
            "percentunit",
            _of("gpu_utilization_ratio", node),
        ).max(1),
    ]


def _limits(node: str) -> list[Panel]:
    return [
        graph(
            "Power",
            "Drawn by the whole board.",
            "watt",
            _of("gpu_power_watts", node),
            (f"min(gpu_power_limit_watts{{{node}}})", "lowest limit"),
        ),
        graph(
            "Temperature",
            "Of the hottest sensor of each GPU.",
            "celsius",
            _of("gpu_temperature_celsius", node),
        ),
        graph(
            "Degrees left until it slows down",
            "At 0 the GPU lowers its own clocks.",
            "celsius",
            _of("gpu_temperature_margin_celsius", node),
            signed=True,
        ),
        graph(
            "SM clock",
            "Lower on one GPU than on the others: heat, power, or a setting.",
            "hertz",
            _of("gpu_clock_hertz", node, ', domain="sm"'),
            (f'max(gpu_clock_max_hertz{{{node}, domain="sm"}})', "highest allowed"),
        ),
    ]


def _use(node: str) -> list[Panel]:
    return [
        graph(
            "Time held down",
            "Share of time for which a reason held a GPU's clocks down, counted by the driver, "
            "so nothing is missed between scrapes. Power capping is normal under full load.",
            "percentunit",
            (
                f"max by (reason) (rate(gpu_throttle_seconds_total{{{node}}}[$__rate_interval]))",
                "{{reason}}",
            ),
        ),
        graph(
            "Where the time goes",
            "Mean over the node's GPUs of the share of time or width that each part was in "
            "use. Hopper and later.",
            "percentunit",
            (f"avg(gpu_graphics_active_ratio{{{node}}})", "any work"),
            (f"avg(gpu_sm_active_ratio{{{node}}})", "SMs busy"),
            (f"avg(gpu_sm_occupancy_ratio{{{node}}})", "SM occupancy"),
            (f"avg(gpu_tensor_active_ratio{{{node}}})", "tensor cores"),
            (f"avg(gpu_dram_active_ratio{{{node}}})", "memory bandwidth"),
            (f"avg(gpu_memory_utilization_ratio{{{node}}})", "memory read or written"),
            (f"avg by (pipe) (gpu_pipe_active_ratio{{{node}}})", "pipe {{pipe}}"),
        ).max(1),
        graph(
            "Memory in use",
            "Framebuffer that processes hold, of each GPU.",
            "bytes",
            _of("gpu_memory_used_bytes", node),
            (f"min(gpu_memory_total_bytes{{{node}}})", "there is"),
            (f"max(gpu_memory_reserved_bytes{{{node}}})", "driver's own"),
        ),
    ]


def health(node: str) -> list[Panel]:
    """Return the boards, the soundness of their memory, and their energy.

    Parameters
    ----------
    node
        Label matchers of the node.
    """
    return [_boards(node), _memory(node), _errors(node), _remapped(node), *_bursts(node)]


def _boards(node: str) -> Panel:
    board = "gpu, uuid, name, serial, pci_bus_id, vbios, driver, numa_node"
    columns = {
        "gpu": "GPU",
        "name": "Board",
        "serial": "Serial",
        "pci_bus_id": "PCI",
        "numa_node": "NUMA",
        "vbios": "VBIOS",
        "driver": "Driver",
        "uuid": "UUID",
        "Value #A": "Answers",
        "Value #B": "State",
        "Value #C": "Jobs",
        "Value #D": "Energy",
    }
    information = f"max by ({board}) (gpu_info{{{node}}})"

    def joined(metric: str) -> str:
        return f"{information} * on (gpu) group_left () max by (gpu) ({metric}{{{node}}})"

    return (
        rows(
            "Boards",
            "Every board seen since the exporter started, whether it answers, its performance "
            "state (0 is the fastest), the training jobs that hold it, and the energy it has used.",
            columns,
            joined("gpu_present"),
            joined("gpu_performance_state"),
            joined("gpu_jobs"),
            joined("gpu_energy_joules_total"),
        )
        .no_value("The node has no GPU that the driver lists.")
        .override_by_name(
            "Answers",
            properties(
                {
                    "mappings": value_map(("1", "yes", GREEN), ("0", "no", RED)),
                    "custom.cellOptions": {"type": "color-text"},
                }
            ),
        )
        .override_by_name("Energy", properties({"unit": "joule", "decimals": 1}))
    )


def _memory(node: str) -> Panel:
    columns = {
        "gpu": "GPU",
        "action": "Driver asks for",
        "Value #A": "Recovery action",
        "Value #B": "Row remap waits",
        "Value #C": "Row remap failed",
        "Value #D": "Too many SRAM errors",
        "Value #E": "Unrepairable",
        "Value #F": "Repair waits",
        "Value #G": "Banks without spare rows",
        "Value #H": "Retired pages",
        "Value #I": "Page retirement waits",
        "Value #J": "Fabric problems",
        "Value #K": "Fabric state (3 is joined)",
    }
    action = (
        f"max by (gpu, action) (gpu_recovery_action_info{{{node}}})"
        f" * on (gpu) group_left () max by (gpu) (gpu_recovery_action{{{node}}})"
    )

    def of(metric: str, extra: str = "", aggregate: str = "max") -> str:
        return f"{aggregate} by (gpu) ({metric}{{{node}{extra}}})"

    panel = rows(
        "Memory and recovery",
        "0 everywhere is well. What waits is done at the next reset of the GPU; what failed or "
        "cannot be repaired wants another board.",
        columns,
        action,
        of("gpu_row_remap_pending"),
        of("gpu_row_remap_failed"),
        of("gpu_sram_ecc_threshold_exceeded"),
        of("gpu_unrepairable_memory"),
        of("gpu_repair_pending"),
        of("gpu_row_remap_banks", ', availability="none"', "sum"),
        of("gpu_retired_pages", "", "sum"),
        of("gpu_page_retirement_pending"),
        of("gpu_fabric_health", "", "sum"),
        of("gpu_fabric_state"),
    )
    bad = {
        "custom.cellOptions": {"type": "color-text"},
        "thresholds": {
            "mode": "absolute",
            "steps": [{"value": None, "color": GREEN}, {"value": 1, "color": RED}],
        },
    }
    for heading in list(columns.values())[3:-1]:
        panel = panel.override_by_name(heading, properties(bad))
    return panel.no_value("The driver reports nothing about the memory.")


def _errors(node: str) -> Panel:
    return graph(
        "Memory errors (ECC)",
        "Since the driver was loaded, where most were found, by GPU and severity. Corrected ones "
        "do no harm; an uncorrected one ends the job.",
        "short",
        (
            # Some GPUs report the sum only, others the parts, others both.
            f'max by (gpu, severity) (gpu_ecc_errors_total{{{node}, scope="volatile"}})',
            "GPU {{gpu}} {{severity}}",
        ),
    )


def _remapped(node: str) -> Panel:
    return graph(
        "Memory rows replaced",
        "Rows that spare ones stand in for, by GPU and cause.",
        "short",
        (f"max by (gpu, cause) (gpu_remapped_rows{{{node}}})", "GPU {{gpu}} {{cause}}"),
    )


def _bursts(node: str) -> list[Panel]:
    off = "The sampler is off: sampler.interval_milliseconds"
    return [
        graph(
            "Power between two scrapes",
            "By the driver's own samples, of the GPU with the highest: swings that a scrape does "
            "not see.",
            "watt",
            (f"max by (statistic) (gpu_burst_power_watts{{{node}}})", "{{statistic}}"),
        ).no_value(off),
        graph(
            "Utilisation between two scrapes",
            "By the driver's own samples, of the GPU with the lowest.",
            "percentunit",
            (f"min by (statistic) (gpu_burst_utilization_ratio{{{node}}})", "{{statistic}}"),
        )
        .max(1)
        .no_value(off),
    ]
