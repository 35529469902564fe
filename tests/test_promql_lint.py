"""The lint itself: each check finds its mistake and leaves good expressions alone."""

from __future__ import annotations

import pytest

from promql_lint import Metric, lint, lint_alert

SCHEMA = {
    "work_total": Metric("counter", frozenset({"mode"})),
    "size_bytes": Metric("gauge", frozenset({"device"})),
    "finding": Metric("gauge", frozenset({"job_id", "node", "metric"})),
}


@pytest.mark.parametrize(
    "expression",
    [
        "sum by (cluster, node) (rate(work_total[1m]))",
        'size_bytes{device="a", cluster="c"} / 2',
        "size_bytes / on (cluster, node, device) (size_bytes > 0)",
        "finding * on (cluster, node) group_left () max by (cluster, node) (size_bytes)",
        "time() - max by (job_id) (finding)",
        "topk(3, max by (node, metric) (finding))",
        "max by (metric) (topk by (node) (1, finding))",
        "max(finding) or vector(0)",
        "max by (node, device) (size_bytes < size_bytes)",
        "max by (node, metric) (size_bytes * on (node) group_left (metric) finding)",
        'sum by (port) (label_replace(size_bytes, "port", "$1", "device", "(.+)"))',
    ],
)
def test_a_good_expression_has_no_problem(expression):
    assert lint(expression, SCHEMA) == []


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("nothing_like_it", "unknown metric 'nothing_like_it'"),
        ('{__name__=~"a.*"}', "selector without a metric name"),
        ('size_bytes{mode="user"}', "no label 'mode' to select by"),
        ("sum by (node, mode) (size_bytes)", "no label 'mode' inside"),
        ("sum without (mode) (size_bytes)", "no label 'mode' inside"),
        ("sum by (device) (max by (node) (size_bytes))", "no label 'device' inside"),
        ("finding * on (device) group_left () size_bytes", "no label 'device' in finding"),
        ("rate(size_bytes[1m])", "rate() of size_bytes, which is a gauge"),
        ("increase(finding[1m])", "increase() of finding, which is a gauge"),
        ("size_bytes / on (node) sum by (node) (size_bytes)", "not guarded against 0"),
        ("size_bytes / 0", "division by 0"),
        ("sum by (node (size_bytes)", "does not parse"),
    ],
)
def test_a_mistake_is_found(expression, problem):
    problems = lint(expression, SCHEMA)

    assert any(problem in found for found in problems), problems


@pytest.mark.parametrize(
    "expression",
    [
        "max by (cluster, job_id, node) (max_over_time(finding[1m])) > 0",
        "absent(finding)",
        "absent(finding) and absent(size_bytes)",
        "vector(1)",
        "finding < 0.8 and on (job_id) max by (job_id) (max_over_time(finding[1h])) > 0",
    ],
)
def test_a_good_alert_has_no_problem(expression):
    assert lint_alert(expression, 60, SCHEMA) == []


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("finding", "no comparison"),
        ("avg_over_time(finding[5m]) > 0", "use keep_firing_for"),
        ("topk(1, finding) > 0", "topk in an alert"),
        ("max by (cluster, node) (finding) > 0", "loses the label 'job_id'"),
        ("max by (cluster, job_id) (finding) > 0", "loses the label 'node'"),
        ("max by (job_id, node) (finding) > 0", "loses the label 'cluster'"),
        ("finding > 0 or max by (cluster, node) (finding) > 1", "loses the label 'job_id'"),
    ],
)
def test_a_mistake_in_an_alert_is_found(expression, problem):
    problems = lint_alert(expression, 300, SCHEMA)

    assert any(problem in found for found in problems), problems


def test_a_window_that_only_remembers_may_have_to_last():
    expression = "last_over_time(finding[15m]) > 0 unless on (node) size_bytes"

    assert lint_alert(expression, 300, SCHEMA) == []


def test_what_is_absent_for_a_moment_is_no_alert():
    (problem,) = lint_alert("absent(finding)", 30, SCHEMA)

    assert "absent() with for below 60 s" in problem
