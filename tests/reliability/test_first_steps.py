"""When attempts made progress, from the steps of their rank 0."""

from __future__ import annotations

import pytest

from peerwatch_reliability.errors import SourceError
from peerwatch_reliability.records import Jobs, Window
from peerwatch_reliability.report.books import books_of
from peerwatch_reliability.settings.config import PrometheusConfig, ReliabilityConfig
from peerwatch_reliability.sources.prometheus.evidence import NOTHING_OBSERVED
from peerwatch_reliability.sources.prometheus.first_steps import FirstStepReader, start_of
from peerwatch_reliability.sources.prometheus.server import Series
from peerwatch_reliability.sources.prometheus.signals import NO_SIGNALS
from reliability_rows import T0, row


class Answers:
    """A server that knows the first steps of jobs, and keeps what it was asked."""

    def __init__(self, **steps):
        self.config = PrometheusConfig(url="http://p:9090", selector='cluster="c1"')
        self.steps = steps
        self.asked = []

    def at_all(self, queries):
        queries = list(queries)
        self.asked += queries
        return [
            [Series({"job_id": job}, [(at, step)]) for job, step in self.steps.items()
             if job in query and step <= at]
            for query, at in queries
        ]  # fmt: skip


def test_each_is_asked_for_once():
    server = Answers(a=1090.0, b=1200.0)
    reader = FirstStepReader(server)
    starts = [("a", 1000.0), ("b", 1010.0), ("c", 1000.0)]
    assert reader.read(starts, 1100.0).by_start == {start_of("a", 1000.0): 1090.0}
    found = reader.read(starts, 9000.0)
    assert found.by_start == {start_of("a", 1000.0): 1090.0, start_of("b", 1010.0): 1200.0}
    assert found.missing == ()
    asked = len(server.asked)
    # That c made no step is known by now as well.
    assert reader.read(starts, 9000.0) == found
    assert len(server.asked) == asked
    query, at = server.asked[0]
    assert 'rank_last_step_timestamp_seconds{cluster="c1",rank="0",job_id=~"' in query
    assert ("> 960)" in query, at) == (True, 1100.0)


def test_names_of_jobs_are_no_expressions():
    server = Answers()
    FirstStepReader(server).read([('x.y"z', 1000.0)], 1100.0)
    assert r'job_id=~"x\\.y\"z"' in server.asked[0][0]


def test_what_is_not_answered_is_missing():
    server = Answers()
    server.at_all = lambda queries: [SourceError("p: answers 503") for _ in list(queries)]
    assert FirstStepReader(server).read([("a", 1000.0)], 1100.0) == (
        {},
        ("1 queries about first steps failed (p: answers 503)",),
    )


@pytest.mark.parametrize(
    ("step", "restart", "source"), [(100, 90, "measured"), (None, 300, "assumed"),
                                    (5000, 300, "assumed")],
)  # fmt: skip
def test_the_restart_is_measured_by_it(step, restart, source):
    """One that is not within the attempt is of another in the same minute."""
    rows = [row("1", 1, "completed", 0, 10, 3610)]
    steps = {} if step is None else {start_of("1", T0 + 10): T0 + step}
    window = Window(T0 - 100, T0 + 4000)
    found = books_of(
        Jobs(rows, ()), NOTHING_OBSERVED._replace(first_steps=steps), NO_SIGNALS, window,
        ReliabilityConfig(nodes=1),
    )  # fmt: skip
    (use,) = found.uses.values()
    assert (use.restart.expected, use.start_up.source) == (restart, source)
    assert found.ettr.ratio.expected == pytest.approx((3600 - restart) / 3610)
