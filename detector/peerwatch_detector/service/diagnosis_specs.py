"""The metrics about what the jobs themselves say; part of the catalogue."""

from __future__ import annotations

from peerwatch_common.metrics.spec import MetricSpec

DIAGNOSIS_SPECS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "peerwatch_diagnosis",
        "gauge",
        "1",
        ("job_id", "node", "rank", "class", "domain", "confidence", "action"),
        "1 while a verdict from the job's own evidence stands, or what the job failed of: the "
        "class of fault (the symptom of a failure), whose it is (user, software, hardware, none, "
        "unknown), how sure (sure, likely, undecided) and what to do (isolate, replace, drain, "
        "restart, ask, inspect, none). Node and rank are empty where nobody is named.",
        "diagnosis",
    ),
    MetricSpec(
        "peerwatch_diagnosis_info",
        "gauge",
        "1",
        ("job_id", "node", "rank", "class", "root", "summary"),
        "Always 1, for every verdict that stands: what speaks for it, in a sentence. root is 1 of "
        "what the job failed of, weighed from everything that was observed, and says what to do "
        "first; it is empty otherwise.",
        "diagnosis",
    ),
    MetricSpec(
        "peerwatch_diagnosis_last_success_timestamp_seconds",
        "gauge",
        "seconds",
        ("job_id",),
        "When the evidence of the job was last read and every diagnoser answered (Unix time).",
        "diagnosis",
        not_drawn="how the diagnosis itself does; its errors are counted",
    ),
    MetricSpec(
        "peerwatch_diagnosis_unanswered",
        "gauge",
        "1",
        ("job_id", "query"),
        "1 while Prometheus does not answer this query about the nodes of a job that something "
        "stands against: what the job failed of is found without it.",
        "diagnosis",
        not_drawn="the diagnosis itself says what is missing",
    ),
    MetricSpec(
        "peerwatch_diagnosis_errors_total",
        "counter",
        "1",
        ("reason",),
        "Readings of jobs' evidence that failed, by the reasons of peerwatch_read_errors_total, "
        "and diagnosers that did (diagnoser); the log names each. What stood stays as it was.",
        "diagnosis",
        not_drawn="the log says which job and why; what stood stays as it was",
    ),
)
