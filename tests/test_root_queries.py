"""What the root diagnosis asks for is what exporters, checks and the detector publish."""

from __future__ import annotations

import promql_parser
import pytest

from each_case import each_case
from peerwatch_common.check_results.metrics import SPECS as CHECKS
from peerwatch_detector.diagnosis.root.live.queries import HAS_EVIDENCE, QUERIES
from peerwatch_detector.reading import promql
from promql_lint import Metric, groupings, names, pack_schema

ASKED = {**QUERIES, "sign": HAS_EVIDENCE}


def schema() -> dict[str, Metric]:
    checks = {spec.name: Metric(spec.kind, frozenset(spec.labels)) for spec in CHECKS}
    return pack_schema() | checks


@each_case("name", ASKED)
def test_metrics_and_labels_that_are_asked_for_are_published(name: str) -> None:
    parsed = promql_parser.parse(promql.job_query(ASKED[name], "llm"))
    assert [] == [*names(parsed, schema()), *groupings(parsed, schema())]


@pytest.mark.parametrize(
    ("published", "asked"),
    [("log_event_last_timestamp_seconds", "log_event"), ("signature", "kind"), ("xid", "code")],
)
def test_a_name_that_nobody_publishes_is_noticed(published: str, asked: str) -> None:
    found = []
    for query in QUERIES.values():
        parsed = promql_parser.parse(promql.job_query(query.replace(published, asked), "llm"))
        found += [*names(parsed, schema()), *groupings(parsed, schema())]
    assert found
