"""Instant queries about one moment: what fails costs only itself, and never the ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from detector.fake_prometheus import FakePrometheus, fake_prometheus, refuse, success
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading import promql
from peerwatch_detector.reading.instant_reader import InstantReader
from peerwatch_detector.reading.reader import instant_reader, root_reader

ONE = success("vector", [{"metric": {"rank": "3"}, "value": [1_700_000_000, "1"]}])


@pytest.fixture
def server() -> Iterator[FakePrometheus]:
    with fake_prometheus(ONE) as running:
        yield running


def reader_of(server: FakePrometheus, **reading: object) -> InstantReader:
    config = {
        "prometheus": {"url": server.url, "reading": reading},
        "diagnosis": {"timeout_seconds": 2, "reading_threads": 1},
    }
    return instant_reader(DetectorConfig.model_validate(config))


def by_query(server: FakePrometheus, answers: dict[str, Callable[..., None]]) -> None:
    def respond(handler: BaseHTTPRequestHandler) -> None:
        answers[server.requests[-1].form["query"]](handler)

    server.response = respond


def test_every_query_is_answered_under_its_name(server: FakePrometheus) -> None:
    answers = reader_of(server).read({"states": "a", "ends": "b"})

    assert {"states", "ends"} == answers.keys()
    (series,) = answers["states"]  # type: ignore[misc]
    assert {"rank": "3"} == series.labels
    assert ["a", "b"] == [request.form["query"] for request in server.requests]


def test_a_query_that_is_refused_costs_only_itself(server: FakePrometheus) -> None:
    by_query(server, {"bad": refuse(422, "execution", "too many samples"), "good": ONE})
    reader = reader_of(server)
    answers = reader.read({"bad": "bad", "good": "good"})

    assert isinstance(answers["bad"], ReadError)
    assert 1 == len(answers["good"])  # type: ignore[arg-type]
    assert {answers["bad"].reason: 1} == reader.errors


def test_more_series_than_allowed_are_refused(server: FakePrometheus) -> None:
    many = [{"metric": {"rank": str(n)}, "value": [1, "1"]} for n in range(101)]
    server.response = success("vector", many)
    answer = reader_of(server, max_series=100).read({"states": "a"})["states"]

    assert isinstance(answer, ReadError)
    assert "too_large" == answer.reason
    assert "max_series 100" in str(answer)


def test_a_server_that_hangs_is_given_up_at_the_deadline_and_left_alone(
    server: FakePrometheus,
) -> None:
    server.response = lambda _: (server.release.wait(60), None)[1]
    reader = reader_of(server)
    for _ in range(2):
        with pytest.raises(ReadError) as raised:
            reader.read({"a": "a", "b": "b"})
        assert "timeout" == raised.value.reason
    with pytest.raises(ReadError, match="Not asked for another"):
        reader.read({"a": "a"})
    # Of each reading only the first query was sent, and nothing while the server is left alone.
    assert ["a", "a"] == [request.form["query"] for request in server.requests]
    assert {"timeout": 2} == reader.errors


def test_a_job_id_cannot_break_out_of_its_matcher() -> None:
    query = promql.job_query("max by (rank) (rank_info{ {{ job }} })", 'a"} or up{b="\n')
    assert 'max by (rank) (rank_info{ job_id="a\\"} or up{b=\\"\\n" })' == query


def test_several_slow_queries_about_a_root_keep_no_other_from_being_asked(
    server: FakePrometheus,
) -> None:
    slow = refuse(503, "timeout", "query timed out in expression evaluation")
    by_query(server, {"slow": slow, "good": ONE})
    reader = root_reader(DetectorConfig.model_validate({"prometheus": {"url": server.url}}))
    for _ in range(4):
        with pytest.raises(ReadError, match="timed out"):
            reader.read({"slow": "slow"})
    assert 1 == len(reader.read({"good": "good"})["good"])  # type: ignore[arg-type]
    # A server that answers nothing is left alone all the same.
    for _ in range(10):
        with pytest.raises(ReadError):
            reader.read({"slow": "slow"})
    assert 4 + 10 > sum(request.form["query"] == "slow" for request in server.requests)
