"""What Prometheus knows of the end of a job."""

import pytest

from peerwatch_responder.retry import prometheus
from peerwatch_responder.retry.prometheus import PrometheusIncident, diagnosis_in
from peerwatch_responder.retry.reading.facts import JobFacts
from peerwatch_responder.server import ServerError
from peerwatch_responder.settings.config import ServerConfig

SERVER = ServerConfig(url="http://127.0.0.1:9")


def cause(node="", confidence="sure", action="isolate", class_name="gpu_memory"):
    return {
        "node": node,
        "class": class_name,
        "domain": "hardware",
        "confidence": confidence,
        "action": action,
    }


def answered(monkeypatch, causes, steps):
    asked = []

    def get_json(_server, path, query):
        asked.append(query)
        rows = steps if "rank_steps_total" in query["query"] else causes
        return {"data": {"result": rows}}

    monkeypatch.setattr(prometheus, "get_json", get_json)
    return asked


def test_the_root_and_the_last_step(monkeypatch):
    causes = [{"metric": cause("node-2")}, {"metric": cause("node-1")}]
    asked = answered(monkeypatch, causes, [{"value": [1, "1200"]}])
    incident = PrometheusIncident(SERVER, lambda: 1000.0)(JobFacts(job_id='a"b', ended=100.0))
    assert incident.step == 1200
    assert incident.diagnosis.nodes == ("node-1", "node-2")
    # A minute after the end, and never what a job's name makes of the query.
    assert {each["time"] for each in asked} == {"160.000"}
    assert all('job_id="a\\"b"' in each["query"] for each in asked)


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_a_step_that_is_no_number_is_unknown(monkeypatch, value):
    answered(monkeypatch, [], [{"value": [1, value]}])
    assert PrometheusIncident(SERVER)(JobFacts(job_id="1")).step is None


def test_the_surest_counts():
    found = diagnosis_in([cause("b", "likely", "restart"), cause("a"), cause("c", "undecided")])
    assert (found.action, found.nodes) == ("isolate", ("a",))
    assert diagnosis_in([cause("c", "undecided")]) is None
    assert diagnosis_in([]) is None


@pytest.mark.parametrize("rows", [None, [{"metric": 3}], [{}], [{"value": ["x"]}]])
def test_an_answer_that_is_none_is_a_note(monkeypatch, rows):
    answered(monkeypatch, rows, rows)
    incident = PrometheusIncident(SERVER)(JobFacts(job_id="1"))
    assert incident.diagnosis is None
    assert incident.notes


def test_a_server_that_is_gone_is_a_note(monkeypatch):
    def get_json(*_):
        raise ServerError("http://127.0.0.1:9: ConnectionError")

    monkeypatch.setattr(prometheus, "get_json", get_json)
    assert "ConnectionError" in PrometheusIncident(SERVER)(JobFacts(job_id="1")).notes[0]
    assert "unknown" in PrometheusIncident(SERVER)(JobFacts()).notes[0]
