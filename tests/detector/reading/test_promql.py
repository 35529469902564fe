from __future__ import annotations

import itertools

import promql_parser
import pytest

from each_case import each_case
from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.reading import promql
from peerwatch_detector.reading.reader import selection_of

METRICS = DetectorConfig().detection_metrics()
ODD = ["7", "train/llama-70b", 'say "hi"', "back\\slash", "two\nlines", "{}", "übung 日本", "'", ""]


def matcher_of(selector: str) -> tuple[str, str]:
    parsed = promql_parser.parse(selector)
    (matcher,) = parsed.matchers.matchers
    return matcher.name, matcher.value


@pytest.mark.parametrize("job_id", ODD)
def test_any_job_id_reaches_prometheus_as_it_is(job_id: str) -> None:
    selection = selection_of(METRICS[0], job_id, DetectorConfig())
    assert ("job_id", job_id) == matcher_of(selection.selector)


@each_case("metric, job_id", itertools.product(METRICS, [None, *ODD]))
def test_every_expression_of_the_preset_parses(metric: MetricConfig, job_id: str | None) -> None:
    text = promql.joined_query(metric, job_id, 15)
    assert "{{" not in text
    promql_parser.parse(text)
    info = "gpu_job_info" if metric.scope == "gpu" else "host_job_info"
    by = "cluster, job_id, node, gpu" if metric.scope == "gpu" else "cluster, job_id, node"
    assert text.startswith(f"max by ({by}) ({info}{{")
    if job_id is not None:
        assert f"{info}{{{promql.job_matcher(job_id)}}}" in text


def test_the_window_of_the_rates_is_the_one_asked_for() -> None:
    rates = [m for m in METRICS if "rate(" in m.expression]
    assert rates
    for metric in rates:
        assert "[37s]" in promql.joined_query(metric, "j", 37)
        assert "[15s]" not in promql.joined_query(metric, "j", 37)


@pytest.mark.parametrize(
    "query",
    [
        promql.running_jobs("host_job_info"),
        promql.known_jobs("host_job_info", 900),
        promql.present_nodes("exporter_build_info"),
        promql.absent_nodes("absent", 900),
        *(promql.published_findings(job_id, 900) for job_id in ODD),
    ],
)
def test_every_other_query_parses(query: str) -> None:
    promql_parser.parse(query)
