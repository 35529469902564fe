"""What the detector publishes. The label sets are a contract: rules and dashboards join on them."""

from __future__ import annotations

from peerwatch_exporter.catalog.spec import MetricSpec

SPECS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "peerwatch_fault_score",
        "gauge",
        "ratio",
        ("job_id", "node"),
        "How much evidence there is against this node, 0 to 1; 1 means a finding stands.",
        "scores.fault_scores",
    ),
    MetricSpec(
        "peerwatch_normal_score",
        "gauge",
        "1",
        ("job_id", "node", "metric"),
        "Standardised dissimilarity of the node in this metric (Minder's normal score): "
        "higher is less like its peers.",
        "similarity",
    ),
    MetricSpec(
        "peerwatch_continuity_seconds",
        "gauge",
        "seconds",
        ("job_id", "node", "metric"),
        "For how long the node has been the candidate in this metric without a break.",
        "continuity",
    ),
    MetricSpec(
        "peerwatch_zscore",
        "gauge",
        "1",
        ("job_id", "node", "metric"),
        "Distance of the node's value from the job's mean in standard deviations (Aegis), signed.",
        "zscore",
    ),
    MetricSpec(
        "peerwatch_finding",
        "gauge",
        "1",
        ("job_id", "node", "gpu", "metric", "method", "severity"),
        "1 while a finding stands: this node is judged faulty, by this metric and method.",
        "scores.Finding",
    ),
    MetricSpec(
        "peerwatch_finding_start_timestamp_seconds",
        "gauge",
        "seconds",
        ("job_id", "node", "gpu", "metric", "method", "severity"),
        "Since when the node deviates (Unix time), for every finding that stands.",
        "scores.Finding",
    ),
    MetricSpec(
        "peerwatch_finding_info",
        "gauge",
        "1",
        ("job_id", "node", "gpu", "metric", "method", "family", "summary"),
        "Always 1, for every finding that stands: the family of faults that it looks like, and why "
        "the node was named, in a sentence of at most 200 characters for a pager. It does not "
        "change while the finding stands.",
        "explain.Explanation",
    ),
    MetricSpec(
        "peerwatch_job_nodes",
        "gauge",
        "1",
        ("job_id",),
        "Nodes of the training job that the detector compares.",
        "jobs",
    ),
    MetricSpec(
        "peerwatch_job_comparable",
        "gauge",
        "1",
        ("job_id",),
        "1 if the job's nodes can be compared in every metric now; 0 if there are too few of them, "
        "or if too many deviate at once in some metric, which then names nobody.",
        "pipeline",
    ),
    MetricSpec(
        "peerwatch_cycle_duration_seconds",
        "gauge",
        "seconds",
        ("stage",),
        "Wall time of the last cycle over all jobs, by stage.",
        "service",
    ),
    MetricSpec(
        "peerwatch_cycle_last_success_timestamp_seconds",
        "gauge",
        "seconds",
        ("job_id",),
        "When the job was last read and judged without an error (Unix time).",
        "service",
    ),
    MetricSpec(
        "peerwatch_discovery_last_success_timestamp_seconds",
        "gauge",
        "seconds",
        (),
        "When the list of training jobs was last read from Prometheus (Unix time).",
        "service",
    ),
    MetricSpec(
        "peerwatch_read_samples_total",
        "counter",
        "1",
        (),
        "Samples read from Prometheus.",
        "reader",
    ),
    MetricSpec(
        "peerwatch_read_errors_total",
        "counter",
        "1",
        ("reason",),
        "Failed reads by reason: unreachable, timeout, http_4xx, http_5xx, truncated, malformed, "
        "refused.",
        "reader",
    ),
    MetricSpec(
        "peerwatch_reader_up",
        "gauge",
        "1",
        (),
        "1 if the last read from Prometheus succeeded, 0 while it cannot be read.",
        "reader",
    ),
    MetricSpec(
        "peerwatch_data_coverage_ratio",
        "gauge",
        "ratio",
        ("job_id", "metric"),
        "Share of the job's nodes that delivered fresh samples of this metric in the last cycle.",
        "pipeline",
    ),
    MetricSpec(
        "peerwatch_model_info",
        "gauge",
        "1",
        ("metric", "model", "fingerprint"),
        "The model that embeds this metric: lstm_vae, or identity where none was trained.",
        "models.store",
    ),
    MetricSpec(
        "peerwatch_build_info",
        "gauge",
        "1",
        ("version",),
        "Version of the running detector.",
        "service",
    ),
)
