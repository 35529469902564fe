"""The driver does an order once, for whoever signs it, and takes a spare node."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import requests
import yaml

from peerwatch_demo.cluster.nodes import JOB_ID, Place
from peerwatch_demo.response.cluster import history, with_responder
from peerwatch_demo.response.driver import DriverJob
from peerwatch_demo.response.job import JobFiles
from peerwatch_demo.stack.process import StackError
from peerwatch_responder.actions.driver.http import signature

PLACE = Place(Path(__file__).parents[3])


class FakeNode:
    """A node that notes what is started and ended on it."""

    def __init__(self, name, *, is_dead=False):
        self.name, self.is_dead = name, is_dead
        self.done = []

    def assign(self, job_id):
        self.done.append(("assign", job_id))

    def start(self, name, command, environment):
        words = dict(zip(command[4:-1:2], command[5::2], strict=True))
        self.done.append((name, words["--rank"], words["--first"], words["--attempt"]))

    def end(self, name):
        if self.is_dead:
            raise StackError("it is dead")
        self.done.append(("end", name))


@pytest.fixture
def nodes():
    return [FakeNode(f"node-{number}") for number in range(4)]


@pytest.fixture
def driver(tmp_path, nodes):
    with DriverJob(nodes, 3, JobFiles(tmp_path), PLACE) as job:
        assert job.start() == JOB_ID
        yield job


def order(node="node-1", want="replace", job_id=JOB_ID):
    return {"node": node, "want": want, "job_id": job_id}


@pytest.mark.parametrize("is_dead", [False, True])
def test_a_node_is_replaced_once_however_often_it_is_told(driver, nodes, is_dead):
    nodes[1].is_dead = is_dead
    answers = [driver.obey("k1-http-replace", order()) for _ in range(3)]
    assert answers == [{"outcome": "done", "message": "node-3 runs in the place of node-1"}] * 3
    assert driver.nodes() == ("node-0", "node-3", "node-2")
    assert nodes[3].done == [("assign", JOB_ID), ("rank", "1", "node-0", "1")]
    assert nodes[1].done[-1] == ("assign", None)
    assert driver.proof("node-1") == "node-1 is left out"
    assert driver.proof("node-0") == ""
    # There is no spare node any more.
    assert driver.obey("k2", order("node-0"))["outcome"] == "rejected"


@pytest.mark.parametrize(
    "wrong", [{"want": "restart"}, {"job_id": "another"}, {"node": "node-3"}, {"node": "x"}]
)
def test_what_is_not_of_the_job_is_rejected(driver, nodes, wrong):
    assert driver.obey("k1", order(**wrong))["outcome"] == "rejected"
    assert driver.nodes() == ("node-0", "node-1", "node-2")
    assert ("end", "rank") not in nodes[0].done


def test_only_signed_and_new_orders_are_taken(driver):
    told = driver.settings()["actions"]["replace"]
    secret = Path(told["secret_file"]).read_bytes()
    body = json.dumps(order()).encode()

    def post(headers):
        headers = {**headers, "Idempotency-Key": "k1"}
        return requests.post(told["url"], data=body, headers=headers, timeout=300).status_code

    assert post({}) == 401
    assert post(signature(b"another", body, time.time())) == 401
    assert post(signature(secret, body, time.time() - 3600)) == 401
    assert driver.nodes() == ("node-0", "node-1", "node-2")
    assert post(signature(secret, body, time.time())) == 200
    assert driver.nodes() == ("node-0", "node-3", "node-2")


def test_the_responder_hears_of_faulty_nodes_first_and_the_pager_all_the_same():
    before = yaml.safe_load(PLACE.alertmanager_example.read_text())
    text = with_responder(PLACE.alertmanager_example.read_text(), "http://here/alerts", "token")
    after = yaml.safe_load(text)
    first, *rest = after["route"]["routes"]
    assert (first["receiver"], first["continue"]) == ("responder", True)
    assert rest == before["route"]["routes"]
    assert after["receivers"][:-1] == before["receivers"]
    (hook,) = after["receivers"][-1]["webhook_configs"]
    assert hook["http_config"] == {"authorization": {"credentials": "token"}}


@pytest.mark.parametrize("answer", [None, [], {}, {"responses": []}])
def test_a_responder_that_does_not_answer_did_nothing(answer):
    assert history(answer) == []
