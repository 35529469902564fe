"""The row that says whether the detector itself can be believed."""

from __future__ import annotations

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.models import common

from parts import GREEN, Panel, fixed, graph, properties, target


def panels(job: str) -> list[Panel]:
    """Return the panels about the detector's cycles, reads and data.

    Parameters
    ----------
    job
        Label matchers of the training job.
    """
    cluster = 'cluster=~"$cluster"'
    return [
        graph(
            "Cycle duration by stage",
            "Wall time of the detector's last cycle over all of its jobs. The sum must stay below "
            "the cycle's interval (15 s unless configured otherwise).",
            "s",
        )
        .min(0)
        .fill_opacity(40)
        .stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
        .with_target(
            target(f"max by (stage) (peerwatch_cycle_duration_seconds{{{cluster}}})", "{{stage}}")
        ),
        graph(
            "Data coverage by metric",
            "Share of the job's nodes that delivered fresh samples in the last cycle.",
            "percentunit",
        )
        .min(0)
        .max(1)
        .with_target(
            target(f"min by (metric) (peerwatch_data_coverage_ratio{{{job}}})", "{{metric}}")
        ),
        graph(
            "Samples read per second",
            "What the detector reads from Prometheus, over all of its jobs.",
            "short",
        )
        .min(0)
        .with_target(
            target(
                f"sum(rate(peerwatch_read_samples_total{{{cluster}}}[$__rate_interval]))",
                "samples",
            )
        ),
        graph(
            "Reads from Prometheus",
            "1 while the detector can read; below, failed reads per second by reason.",
            "short",
        )
        .min(0)
        .override_by_query("A", properties({"color": fixed(GREEN)}))
        .with_target(target(f"min(peerwatch_reader_up{{{cluster}}})", "can read", "A"))
        .with_target(
            target(
                "sum by (reason) "
                f"(rate(peerwatch_read_errors_total{{{cluster}}}[$__rate_interval]))",
                "failed: {{reason}}",
                "B",
            )
        ),
    ]
