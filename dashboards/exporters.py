"""The detector dashboard's rows about exporters: collectors, cost, drivers, sampler, web."""

from __future__ import annotations

from links import column_to, series_to
from parts import Panel, areas, beside, graph, properties, rows
from promql import busiest, highest, oldest, rate

_NODE = "cluster, node"
_SHOWN = 50


def panels(exporters: str) -> list[Panel]:
    """Return the panels about collectors and what exporters cost.

    Parameters
    ----------
    exporters
        Label matchers of all exporters.
    """
    return [_failing(exporters), *_runs(exporters), *_cost(exporters)]


def _runs(exporters: str) -> list[Panel]:
    return [
        graph(
            "Slowest collectors",
            "Wall time of the last run on the node where it took longest, by collector; of a run "
            "under way while it is stuck.",
            "s",
            (
                highest(f"exporter_collector_duration_seconds{{{exporters}}}", "collector"),
                "{{collector}}",
            ),
        ),
        graph(
            "Runs past their deadline",
            "Per second by collector, over all nodes; such a run is left out of what a scrape "
            "gets.",
            "short",
            (rate("exporter_collector_timeouts_total", exporters, "collector"), "{{collector}}"),
        ),
        graph(
            "Age of values",
            "Time since the exporter read what a scrape gets, the 20 nodes with the oldest; on the "
            "right, snapshots missed per second: the exporter gets too little CPU time.",
            "s",
            (
                oldest(f"exporter_snapshot_timestamp_seconds{{{exporters}}}", _NODE),
                "{{node}}",
            ),
            (
                busiest(rate("exporter_snapshot_missed_total", exporters, _NODE), 5),
                "{{node}} missed/s",
            ),
        )
        .override_by_query("B", properties(beside("short")))
        .data_links(series_to("node", "node")),
    ]


def _cost(exporters: str) -> list[Panel]:
    return [
        graph(
            "Memory of exporters",
            "Resident memory of its processes, on the node where each is largest and on the median "
            "node.",
            "bytes",
            (
                f"max by (process) (exporter_resident_memory_bytes{{{exporters}}})",
                "{{process}}, largest",
            ),
            (
                f"quantile by (process) (0.5, exporter_resident_memory_bytes{{{exporters}}})",
                "{{process}}, median",
            ),
        ),
        graph(
            "CPU of exporters",
            "CPU seconds per second of its processes, on the node where each uses most and on the "
            "median node.",
            "percentunit",
            (
                "max by (process) "
                f"(rate(exporter_cpu_seconds_total{{{exporters}}}[$__rate_interval]))",
                "{{process}}, highest",
            ),
            (
                "quantile by (process) (0.5,"
                f" rate(exporter_cpu_seconds_total{{{exporters}}}[$__rate_interval]))",
                "{{process}}, median",
            ),
        ),
        graph(
            "Series per node",
            "Most and median, and series that collectors left out for being too many.",
            "short",
            (f"max(exporter_series{{{exporters}}})", "largest"),
            (f"quantile(0.5, exporter_series{{{exporters}}})", "median"),
            (f"sum(exporter_collector_dropped_series{{{exporters}}})", "left out, all nodes"),
        ),
        areas(
            "Sources of job ids",
            "Nodes where each source of training job ids works (1) or fails.",
            "short",
            (f"sum by (provider) (exporter_job_provider_up{{{exporters}}})", "{{provider}} works"),
            (
                f"sum by (provider) (1 - exporter_job_provider_up{{{exporters}}})",
                "{{provider}} fails",
            ),
        ),
        graph(
            "Job mapping files",
            "Files of the mapping directory that could not be used, per second and reason, over "
            "all nodes.",
            "short",
            (rate("exporter_job_mapping_errors_total", exporters, "reason"), "{{reason}}"),
        ).no_value("No mapping directory is read."),
    ]


def _failing(exporters: str) -> Panel:
    by = "cluster, node, collector, error"
    # What an exporter was not given is no failure: alert:without_source:info.
    wrong = f'exporter_collector_error_info{{{exporters},error!="source_missing"}}'
    failing = f"topk({_SHOWN}, max by ({by}) ({wrong}))"
    last = (
        "max by (cluster, node, collector)"
        f" (exporter_collector_last_success_timestamp_seconds{{{exporters}}})"
    )
    columns = {
        "cluster": "Cluster",
        "node": "Node",
        "collector": "Collector",
        "error": "Error",
        "Value": "Last success",
    }
    return (
        rows(
            "Collectors that fail",
            f"Wholly or in part, {_SHOWN} at most. One node: check that node; all nodes: a "
            "permission or a driver.",
            columns,
            f"time() - {last} * on (cluster, node, collector) group_right () {failing}",
        )
        .no_value("Every collector succeeds.")
        .span(24)
        .height(6)
        .override_by_name("Node", column_to("node", node="Node"))
        .override_by_name("Last success", properties({"unit": "s", "decimals": 0}))
    )


def parts_of_it(exporters: str) -> list[Panel]:
    """Return the panels about what can go wrong inside an exporter.

    Parameters
    ----------
    exporters
        Label matchers of all exporters.
    """
    panels = [*_driver(exporters), *_sampler(exporters), *_web(exporters)]
    return [panel.span(8) for panel in panels]


def _driver(exporters: str) -> list[Panel]:
    links = series_to("node", "node")
    return [
        graph(
            "Driver calls that do not return",
            "For how long, by node, collector and GPU, the 20 longest. Unkillable processes want a "
            "reset of the GPU or a reboot.",
            "s",
            (
                highest(
                    f"exporter_collector_stuck_seconds{{{exporters}}}", f"{_NODE}, collector, gpu"
                ),
                "{{node}} {{collector}} GPU {{gpu}}",
            ),
        ).data_links(links),
        graph(
            "NVML errors and restarts",
            "Failed calls per second by code, and driver processes that ended, by reason, over all "
            "nodes.",
            "short",
            (busiest(rate("exporter_nvml_errors_total", exporters, "code")), "error {{code}}"),
            (
                busiest(rate("exporter_nvml_restarts_total", exporters, "reason")),
                "restart: {{reason}}",
            ),
            (f"sum(exporter_nvml_unkillable_processes{{{exporters}}})", "unkillable processes"),
        ).no_value("No call of the GPU driver fails."),
        graph(
            "Sources that GPUs do not have",
            "GPUs whose metrics of a source are missing because board or driver has none.",
            "short",
            (
                f"sum by (source) (1 - exporter_source_supported{{{exporters}}})",
                "{{source}} missing",
            ),
            (f"sum by (source) (exporter_source_supported{{{exporters}}})", "{{source}} there"),
        ),
        graph(
            "XID reports by source",
            "Per second, before those of both sources are made one: the kernel log sees all codes, "
            "the driver's events miss some.",
            "short",
            (rate("exporter_xid_events_total", exporters, "source"), "{{source}}"),
        ),
    ]


def _sampler(exporters: str) -> list[Panel]:
    off = "The sampler is off: sampler.interval_milliseconds"
    return [
        graph(
            "Sampler: interval",
            "Longest time between two samples as achieved, over all nodes; on the right, how many "
            "nodes had to stretch it.",
            "s",
            (f"max(sampler_interval_seconds{{{exporters}}})", "longest"),
            (f"sum(sampler_interval_stretched{{{exporters}}})", "nodes that stretch it"),
        )
        .override_by_query("B", properties(beside("short")))
        .no_value(off),
        graph(
            "Sampler: late and missing",
            "Late samples per second, counters that cannot be read, restarts, over all nodes; on "
            "the right, for how long the longest has been stuck.",
            "short",
            (busiest(rate("sampler_late_samples_total", exporters, _NODE), 5), "{{node}} late"),
            (f"sum(sampler_missing_series{{{exporters}}})", "counters missing"),
            (f"sum(sampler_series{{{exporters}}})", "counters sampled"),
            (f"sum(rate(sampler_restarts_total{{{exporters}}}[$__rate_interval]))", "restarts"),
            (f"max(sampler_stuck_seconds{{{exporters}}})", "stuck for"),
        )
        .override_by_query("E", properties(beside("s")))
        .no_value(off),
        graph(
            "Sampler: CPU",
            "CPU of the sampler process on the node where it uses most.",
            "percentunit",
            (f"max(sampler_cpu_ratio{{{exporters}}})", "highest"),
            (f"quantile(0.5, sampler_cpu_ratio{{{exporters}}})", "median"),
        ).no_value(off),
    ]


def _web(exporters: str) -> list[Panel]:
    return [
        graph(
            "Web: refused",
            "Connections turned away because too many were open, and failed logins, per second, "
            "over all nodes.",
            "short",
            (
                ""
                f"sum(rate(exporter_web_rejected_connections_total{{{exporters}}}[$__rate_interval]))",
                "too many connections",
            ),
            (
                f"sum(rate(exporter_web_failed_logins_total{{{exporters}}}[$__rate_interval]))",
                "failed logins",
            ),
        ),
        graph(
            "Configuration",
            "Nodes whose settings, or whose web configuration, certificate or key, cannot be used "
            "as they stand; and how often settings were read again.",
            "short",
            (
                f"count(exporter_config_last_reload_successful{{{exporters}}} == 0) or vector(0)",
                "settings",
            ),
            (f"sum(exporter_web_config_reload_failed{{{exporters}}})", "web configuration"),
            (
                f"sum by (result) (increase(exporter_config_reloads_total{{{exporters}}}"
                "[$__rate_interval]))",
                "read: {{result}}",
            ),
        ),
    ]
