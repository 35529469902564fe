"""The detector's rows: how long its cycles take, what it reads, which jobs and metrics it sees."""

from __future__ import annotations

from findings import words
from links import column_to, series_to
from parts import GREEN, Panel, areas, beside, fixed, graph, heat, properties, rows
from promql import highest, oldest, rate

_JOB = "cluster, job_id"
_SHOWN = 50


def panels(detectors: str) -> list[Panel]:
    """Return the panels about cycles and reads.

    Parameters
    ----------
    detectors
        Label matchers of all detectors.
    """
    there = f"peerwatch_detector_member{{{detectors}}}"
    return [
        areas(
            "Cycle duration by stage",
            "What each stage took last on the slowest detector; read and detect are sums over its "
            "jobs. detect must stay below the cycle's interval (15 s unless configured otherwise), "
            "read below that times the reading threads (4).",
            "s",
            (f"max by (stage) (peerwatch_cycle_duration_seconds{{{detectors}}})", "{{stage}}"),
        ),
        graph(
            "Lateness of detections",
            "By job, the 20 that were latest: how long after it was due a job's last turn ended, "
            "or how long it is overdue. Near 0 while the detectors keep up.",
            "s",
            (
                highest(f"peerwatch_cycle_lateness_seconds{{{detectors}}}", "job_id"),
                "{{job_id}}",
            ),
        ).data_links(series_to("job", "job_id")),
        graph(
            "Time since jobs were evaluated",
            "By job, the 20 that wait longest. Lines that rise without end: these jobs fail, the "
            "log says why.",
            "s",
            (
                oldest(f"peerwatch_cycle_last_success_timestamp_seconds{{{detectors}}}", "job_id"),
                "{{job_id}}",
            ),
        ).data_links(series_to("job", "job_id")),
        graph(
            "Samples read per second",
            "What all detectors read from Prometheus.",
            "short",
            (
                f"sum(rate(peerwatch_read_samples_total{{{detectors}}}[$__rate_interval]))",
                "samples",
            ),
        ),
        graph(
            "Bytes read per second",
            "What the answers weigh. A cold start reads a quarter of an hour at once.",
            "binBps",
            (f"sum(rate(peerwatch_read_bytes_total{{{detectors}}}[$__rate_interval]))", "bytes"),
        ),
        graph(
            "Waiting for answers",
            "How many requests wait for the server, on average, by the API they are read by. On "
            "the right, for how long a server that failed is left alone.",
            "short",
            (rate("peerwatch_read_seconds_total", detectors, "api"), "{{api}}"),
            (f"max(peerwatch_reader_wait_seconds{{{detectors}}})", "left alone for"),
        ).override_by_query("B", properties(beside("s"))),
        graph(
            "Answers in parts",
            "Requests cut in half because the server refused them or broke off, and answers that "
            "it called partial, per second. Both are 0 on a healthy server.",
            "short",
            (f"sum(rate(peerwatch_read_splits_total{{{detectors}}}[$__rate_interval]))", "split"),
            (
                f"sum(rate(peerwatch_read_partial_responses_total{{{detectors}}}[$__rate_interval]))",
                "partial",
            ),
        ),
        graph(
            "Jobs by detector",
            "How many training jobs each detector evaluates for the others too. A detector that "
            "leaves gives its jobs to the rest within two cycles.",
            "short",
            (f"sum by (instance) (peerwatch_jobs_owned{{{detectors}}})", "{{instance}}"),
            (f"sum(peerwatch_jobs_waiting{{{detectors}}})", "waiting for their turn"),
        ),
        graph(
            "Detectors of a group",
            "Those that are there now, and all that were within the last day. Fewer now: "
            "some were taken away, or are lost.",
            "short",
            (_members(there), "{{group}}: now"),
            (_members(f"last_over_time({there}[1d])"), "{{group}}: last day"),
        ),
        graph(
            "Reads from Prometheus",
            "1 while every detector can read; below, failed reads per second by reason.",
            "short",
            (f"min(peerwatch_reader_up{{{detectors}}})", "can read"),
            (rate("peerwatch_read_errors_total", detectors, "reason"), "failed: {{reason}}"),
        ).override_by_query("A", properties({"color": fixed(GREEN)})),
    ]


def _members(detectors: str) -> str:
    """Return how many a group has; one that came back under another address is the same."""
    return f"count by (group) (max by (cluster, group, member) ({detectors}))"


def observed(detectors: str) -> list[Panel]:
    """Return the panels about what the detector sees of jobs and metrics.

    Parameters
    ----------
    detectors
        Label matchers of all detectors.
    """
    return [_coverage(detectors), _jobs(detectors), _models(detectors)]


def _coverage(detectors: str) -> Panel:
    return heat(
        "Missing data by metric",
        "Share of the nodes of all jobs without fresh samples of a metric: green, all deliver; "
        "red, none does. A metric that is red from the start is one the fleet does not have.",
        "percentunit",
        f"1 - avg by (metric) (peerwatch_data_coverage_ratio{{{detectors}}})",
        "{{metric}}",
    )


def _jobs(detectors: str) -> Panel:
    lowest = f"min by ({_JOB}) (peerwatch_data_coverage_ratio{{{detectors}}} > 0)"
    shown = f"bottomk({_SHOWN}, {lowest})"

    def of(metric: str, aggregate: str = "max") -> str:
        return f"{aggregate} by ({_JOB}) ({metric}{{{detectors}}}) and on ({_JOB}) {shown}"

    coverage = f"max by ({_JOB}, metric) (peerwatch_data_coverage_ratio{{{detectors}}})"
    uncovered = f"count by ({_JOB}) ({coverage} == 0)"
    columns = {
        "cluster": "Cluster",
        "job_id": "Job",
        "Value #A": "Lowest coverage",
        "Value #B": "Metrics without data",
        "Value #C": "Nodes",
        "Value #D": "Comparable",
        "Value #E": "Last evaluated",
    }
    return (
        rows(
            "Jobs it sees least of",
            f"The {_SHOWN} with the lowest coverage, of the metrics that some node delivers.",
            columns,
            shown,
            f"{uncovered} and on ({_JOB}) {shown}",
            of("peerwatch_job_nodes"),
            of("peerwatch_job_comparable", "min"),
            f"time() - {of('peerwatch_cycle_last_success_timestamp_seconds')}",
        )
        .no_value("No job is watched.")
        .span(14)
        .override_by_name("Job", column_to("job", job_id="Job"))
        .override_by_name("Lowest coverage", properties({"unit": "percentunit", "decimals": 0}))
        .override_by_name("Metrics without data", properties({"noValue": "none"}))
        .override_by_name("Comparable", properties({"mappings": words()}))
        .override_by_name("Last evaluated", properties({"unit": "s", "decimals": 0}))
    )


def _models(detectors: str) -> Panel:
    return (
        rows(
            "Models",
            "The model that embeds each metric; identity where none was trained. Only method "
            "minder uses models.",
            {
                "metric": "Metric",
                "model": "Model",
                "fingerprint": "Fingerprint",
                "Value": "Detectors",
            },
            f"count by (metric, model, fingerprint) (peerwatch_model_info{{{detectors}}})",
        )
        .no_value("No detector is scraped.")
        .span(10)
    )
