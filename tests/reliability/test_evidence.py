from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from peerwatch_reliability.errors import SourceError
from peerwatch_reliability.records import Evidence, Window
from peerwatch_reliability.settings.config import PrometheusConfig
from peerwatch_reliability.sources.prometheus.evidence import evidence_query, minute_of, observed
from peerwatch_reliability.sources.prometheus.server import Server
from peerwatch_reliability.sources.prometheus.signals import read_signals

SEEN = ({"kind": "seen"}, 4)


@pytest.fixture
def prometheus():
    """Return a server that answers every query with what ``answer(query, time)`` returns."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            answer = self.server.answer(form["query"][0], float(form["time"][0]))
            if isinstance(answer, bytes):
                body, answer = answer, 200
            elif isinstance(answer, int):
                body = json.dumps({"status": "error", "error": "too\nmuch"}).encode()
            else:
                result = [{"metric": m, "value": [1, str(v)]} for m, v in answer]
                body = json.dumps({"status": "success", "data": {"result": result}}).encode()
            self.send_response(answer if isinstance(answer, int) else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.asked = Server(PrometheusConfig(url=f"http://127.0.0.1:{server.server_address[1]}/"))
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    "result",
    [
        '["a"]', '{"a": 1}', "[1, 2]", '[{"metric": {}}]', '[{"value": [1, "1"]}]',
        '[{"metric": [], "value": [1, "1"]}]', '[{"metric": {}, "value": null}]',
        '[{"metric": {}, "value": [1]}]', '[{"metric": {}, "value": [1, "x"]}]',
    ],
)  # fmt: skip
def test_what_is_no_answer_is_missing(prometheus, result):
    prometheus.answer = lambda *_: f'{{"data": {{"result": {result}}}}}'.encode()
    found = observed(prometheus.asked, [6000.0])
    assert "1 queries about ends were not answered" in found.missing[0]
    signals = read_signals(prometheus.asked, Window(0.0, 28 * 86_400.0))
    assert "signals of nodes are not known" in signals.missing[0]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ('"warnings": ["store gateway-1 is down"]', "store gateway-1 is down"),
        ('"isPartial": true', "isPartial"),
    ],
)
def test_an_answer_in_part_is_missing(prometheus, said, why):
    prometheus.answer = lambda *_: f'{{{said}, "data": {{"result": []}}}}'.encode()
    found = observed(prometheus.asked, [6000.0])
    assert f"answers in part: {why}" in found.missing[0]
    assert found.unseen == {100}


def test_a_remark_about_a_query_is_no_part_that_is_missing(prometheus):
    result = '[{"metric": {"kind": "seen"}, "value": [1, "4"]}]'
    said = '"isPartial": false, "warnings": ["PromQL warning: x"], "infos": ["PromQL info: y"]'
    prometheus.answer = lambda *_: f'{{{said}, "data": {{"result": {result}}}}}'.encode()
    assert observed(prometheus.asked, [6000.0]).missing == ()


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_what_is_no_number_is_not_there(prometheus, value):
    prometheus.answer = lambda *_: [({"kind": "xid", "node": "n1", "xid": "79"}, value)]
    assert observed(prometheus.asked, [6000.0]).by_minute == {100: ()}
    assert read_signals(prometheus.asked, Window(0.0, 86_400.0)).distinct_xids == {}


def test_what_was_not_asked_for_says_nothing(prometheus):
    prometheus.answer = lambda *_: [SEEN, ({"kind": "other", "node": "n1"}, 1), ({}, 1)]
    assert observed(prometheus.asked, [6000.0]).by_minute == {100: ()}


def test_what_was_observed(prometheus):
    times = []

    def answer(_query, time):
        times.append(time)
        return [
            SEEN,
            ({"kind": "check", "node": "n1", "check": "pcie_link", "severity": "high"}, 2),
            ({"kind": "check", "node": "n1", "check": "disk", "severity": "low"}, 2),
            ({"kind": "xid", "node": "n1", "xid": "79", "class": "hardware"}, 5990),
            ({"kind": "xid", "node": "n2", "xid": "94", "class": "degraded"}, 5000),
            ({"kind": "finding", "node": "n2", "metric": "pfc", "job_id": "7"}, 1),
            (
                {"kind": "diagnosis", "node": "n2", "class": "rank_exited", "domain": "user",
                 "confidence": "sure", "job_id": "7"}, 1,
            ),
            ({"kind": "diagnosis", "class": "congestion", "domain": "none", "job_id": "7"}, 1),
            ({"kind": "log", "node": "n1", "class": "D", "signature": "x", "job_id": "7"}, 5991),
            ({"kind": "log", "node": "n1", "class": "H", "signature": "ecc", "job_id": ""}, 5992),
            ({"kind": "checkpoint", "job_id": "7"}, 5500),
            ({"kind": "stall", "job_id": "7"}, 5700),
        ]  # fmt: skip

    prometheus.answer = answer
    found = observed(prometheus.asked, [5950.0, 5990.0])
    # One query for both ends, 5 minutes after the end of their minute.
    assert times == [6300.0]
    assert minute_of(5950.0) == minute_of(6000.0) == 100
    assert found.by_minute[100] == (
        Evidence("check", "n1", "pcie_link", "high", 5340, 6300),
        Evidence("check", "n1", "disk", "low", 5340, 6300),
        Evidence("xid", "n1", "79", "high", 5990, 5990),
        Evidence("xid", "n2", "94", "low", 5000, 5000),
        Evidence("finding", "n2", "pfc", "high", 5340, 6300, "7"),
        Evidence("diagnosis", "n2", "user_rank_exited", "high", 5340, 6300, "7"),
        Evidence("log", "n1", "nccl_timeout", "high", 5991, 5991, "7"),
        Evidence("log", "n1", "ecc_gpu", "high", 5992, 5992),
    )
    assert found.checkpoints == {(100, "7"): 5500}
    assert found.stalls == {"7": [(5700, 6000)]}
    assert found.missing == ()


def test_what_is_missing_is_said(prometheus):
    prometheus.answer = lambda _query, time: 503 if time > 7000 else []
    found = observed(prometheus.asked, [5990.0, 9000.0])
    first, second = found.missing
    assert first.startswith("1 queries about ends were not answered (http://127.0.0.1:")
    assert first.endswith("answers 503: too\\nmuch)")
    assert second.startswith("of 2 of 2 minutes in which attempts ended there is no data")
    assert found.unseen == {100, 150}


def test_no_server():
    config = PrometheusConfig(url="http://127.0.0.1:1")
    with pytest.raises(SourceError, match="ConnectionError"):
        Server(config).at("up", 1.0)


def test_signals(prometheus):
    def answer(query, _time):
        if "cluster:exporters_seen" in query:
            return [({}, 288 * 10)]
        if "xid_logged" in query:
            return [({"node": "n1"}, 3)]
        return []

    prometheus.answer = answer
    found = read_signals(prometheus.asked, Window(0, 28 * 86_400.0))
    assert found.distinct_xids == {"n1": 3}
    assert found.covered_days == 10
    assert found.missing == (
        "the rules of reliability.rules.yaml recorded 10.0 of 28 days: XIDs and tickets of nodes "
        "are counted of those only",
    )


def test_the_selector_is_in_every_part():
    query = evidence_query('cluster="c1"')
    assert query.count('{cluster="c1"') == 10
    assert "{," not in evidence_query("")
