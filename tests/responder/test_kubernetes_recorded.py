"""What a real API server (1.20) answered: through our client, and held against the fake."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from pathlib import Path

import pytest

from fake_kubernetes import TOKEN, FakeKubernetes
from kubernetes_cases import TARGET, actions_at, api_at, cluster_at
from peerwatch_responder.action import LaterError, UnknownError
from peerwatch_responder.actions.kubernetes.api import StatusError

RECORDED = Path(__file__).parent / "recorded/kubernetes_1.20.jsonl"
TAPES = {
    tape["name"]: tape
    for tape in map(json.loads, RECORDED.read_text(encoding="utf-8").splitlines())
}


class Player(http.server.ThreadingHTTPServer):
    """Answers one request after the other with what was recorded."""

    daemon_threads = True

    def __init__(self, tapes):
        self.tapes, self.got = list(tapes), []
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        content_type = self.headers.get("Content-Type")
        self.server.got.append((self.command, self.path, content_type, body))
        tape = self.server.tapes.pop(0)
        response = tape["response"]
        # A watch is one line for each event.
        parts = response if isinstance(response, list) else [response]
        text = "\n".join(map(json.dumps, parts)).encode()
        self.send_response(tape["status"])
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_PATCH = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - http.server's names

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def playing(*tapes):
    """Answer with the exchanges of these names, or with these."""
    with Player(TAPES[each] if isinstance(each, str) else each for each in tapes) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def ask(api, tape):
    if tape["method"] == "GET":
        path, _, query = tape["path"].partition("?")
        return api.get("get it", path + (f"?{query}" if query else ""))
    return api.send("do it", tape["method"], tape["path"], tape["body"], tape["content_type"])


# What each recorded answer means to us; the others are a success.
MEANING = {
    "taint json-patch test fails": (StatusError, "422"),
    "PUT stale -> conflict": (LaterError, "object has been modified"),
    "evict blocked by PDB": (LaterError, "disruption budget llm needs 3 healthy pods"),
    "evict policy/v1 on 1.20": (StatusError, 'no kind "Eviction" is registered'),
    "evict no apiVersion": (LaterError, "disruption budget"),
    "evict dry-run": (LaterError, "disruption budget"),
    "evict unknown pod": (StatusError, "not found"),
    # Watches are not read, so that nothing may be taken for their end.
    "watch pods from rv": (UnknownError, "no JSON object"),
    "watch bookmark": (UnknownError, "no JSON object"),
    "watch too old": (UnknownError, "no JSON object"),
    "401": (UnknownError, "401: Unauthorized"),
}


@pytest.mark.parametrize("name", TAPES)
def test_each_recorded_exchange_goes_through_our_client(name):
    tape = TAPES[name]
    with playing(*[name] * 3) as (server, url):
        if name in MEANING:
            error, message = MEANING[name]
            with pytest.raises(error, match=message):
                ask(api_at(url), tape)
        else:
            assert ask(api_at(url), tape) == tape["response"]
    method, path, content_type, body = server.got[0]
    assert (method, path) == (tape["method"], tape["path"])
    assert (json.loads(body) if body else None) == tape["body"]
    if tape["body"] is not None:
        assert content_type == tape["content_type"]


def sent(server, number=-1):
    method, path, content_type, body = server.got[number]
    return method, path, content_type, json.loads(body) if body else None


def test_a_cordon_is_the_recorded_request_with_its_preconditions_and_mark():
    with playing("get node", "get node", "cordon") as (server, url):
        (step,) = actions_at(url)["cordon"].steps(TARGET)
        found = step.inspect()
        assert found.status == "open"
        assert step.do(found.before) == "200"
    tape, seen = TAPES["cordon"], TAPES["get node"]["response"]["metadata"]
    method, path, content_type, body = sent(server)
    assert (method, path, content_type) == (tape["method"], tape["path"], tape["content_type"])
    assert body["spec"] == tape["body"]["spec"]
    assert body["metadata"] == {
        "annotations": {
            "peerwatch/cordoned-by": TARGET.key,
            "peerwatch/cordon-reason": TARGET.reason,
        },
        "uid": seen["uid"],
        "resourceVersion": seen["resourceVersion"],
    }


def test_a_taint_is_the_recorded_request_with_its_preconditions():
    with playing("get node", "get node", "taint merge-patch") as (server, url):
        (step,) = actions_at(url)["taint"].steps(TARGET)
        assert step.do(step.inspect().before) == "200"
    method, path, content_type, body = sent(server)
    tape = TAPES["taint merge-patch"]
    assert (method, content_type) == (tape["method"], tape["content_type"])
    assert path == "/api/v1/nodes/gpu1"
    assert body["spec"]["taints"] == [
        {"key": "peerwatch/faulty", "value": TARGET.key, "effect": "NoSchedule"}
    ]
    assert body["metadata"]["resourceVersion"] == "284"


def test_a_condition_is_the_recorded_request_with_its_preconditions():
    with playing("get node", "get node", "condition") as (server, url):
        (step,) = actions_at(url)["condition"].steps(TARGET)
        assert step.do(step.inspect().before) == "200"
    method, path, content_type, body = sent(server)
    tape = TAPES["condition"]
    assert (method, path, content_type) == (tape["method"], tape["path"], tape["content_type"])
    (condition,) = body["status"]["conditions"]
    assert set(tape["body"]["status"]["conditions"][0]) <= set(condition)
    assert condition["type"] == "PeerwatchFault"


def test_a_foreign_cordon_as_it_was_recorded_stays():
    with playing("cordon") as (server, url):
        (step,) = actions_at(url)["cordon"].steps(TARGET)
        found = step.inspect()
    assert (found.status, found.text) == ("other", "Node gpu1 is cordoned by somebody else.")
    assert len(server.got) == 1


def test_pods_are_those_that_were_recorded():
    target = TARGET.__class__(TARGET.key, "", "gpu0", "default/llm", TARGET.reason)
    with playing("list pods") as (server, url):
        steps = actions_at(url)["evict"].steps(target)
    uid = "5d04014b-9e7d-4f70-9912-b113253d11da"
    assert [each.name for each in steps] == [
        f"evict default/llm-0 {uid}",
        f"wait for default/llm-0 {uid}",
    ]
    assert server.got[0][1] == "/api/v1/pods?fieldSelector=spec.nodeName%3Dgpu0&limit=250"


def test_an_eviction_of_1_20_falls_back_to_its_own_version():
    listed = TAPES["list pods"]["response"]["items"][0]
    target = TARGET.__class__(TARGET.key, "", "gpu0", "default/llm", TARGET.reason)
    pod = {"status": 200, "response": listed}
    uid = listed["metadata"]["uid"]
    answers = ("cordon", "evict policy/v1 on 1.20", "evict no apiVersion")
    with playing("list pods", pod, *answers) as (server, url):
        step = actions_at(url)["evict"].steps(target)[0]
        with pytest.raises(LaterError, match=r"Pod default/llm-0: .*needs 3 healthy pods"):
            step.do({})
    *_, first, second = (sent(server, number) for number in range(len(server.got)))
    tape = TAPES["evict policy/v1 on 1.20"]
    assert first[:2] == second[:2] == (tape["method"], tape["path"])
    options = {"preconditions": {"uid": uid}}
    assert first[3] == {**tape["body"], "deleteOptions": options}
    assert second[3] == {**TAPES["evict no apiVersion"]["body"], "deleteOptions": options}


def recorded_cluster():
    """Return the fake as the recorded server was before its first exchange."""
    api = FakeKubernetes(rules=None, versions=("v1beta1",))
    for name in ("gpu0", "gpu1", "gpu2"):
        node = api.node(name, {"nvidia.com/gpu.product": "H100"})
        node["status"] = json.loads(json.dumps(TAPES["get node"]["response"]["status"]))
        node["metadata"]["uid"] = TAPES["get node"]["response"]["metadata"]["uid"]
    api.nodes["gpu1"]["metadata"]["resourceVersion"] = "284"
    for pod in json.loads(json.dumps(TAPES["list pods"]["response"]["items"])):
        api.pods["default", pod["metadata"]["name"]] = pod
    api.budgets["default", "llm"] = {"needed": 3, "healthy": 3}
    return api


def test_the_fake_answers_as_the_recorded_server():
    """In the recorded order: the answers differ in versions, times and controllers' speed only."""
    api = recorded_cluster()
    compared = 0
    for name, tape in TAPES.items():
        if name.startswith("watch"):
            continue
        headers = {"Content-Type": tape["content_type"], "Authorization": f"Bearer {TOKEN}"}
        if name == "401":
            headers["Authorization"] = "Bearer another"
        body = json.dumps(tape["body"]).encode() if tape["body"] is not None else b""
        status, content = api.answer(tape["method"], tape["path"], headers, body)
        assert status == tape["status"], name
        expected = tape["response"]
        if status >= 400:
            for field in ("kind", "status", "reason", "code"):
                assert content[field] == expected[field], (name, field)
            assert expected["message"].startswith(content["message"][:60]), name
            assert content.get("details", {}) == expected.get("details", {}), name
        elif expected.get("kind") == "Node":
            unscheduled = expected["spec"].get("unschedulable")
            assert content["spec"].get("unschedulable") == unscheduled, name
            types = {each["type"] for each in expected["status"]["conditions"]}
            assert {each["type"] for each in content["status"]["conditions"]} == types, name
        compared += 1
    assert compared == len(TAPES) - 3 == 16


def test_the_recorded_nodes_and_a_refusal_reach_the_cluster():
    items = [TAPES["get node"]["response"], TAPES["taint merge-patch"]["response"]]
    response = {"kind": "NodeList", "metadata": {}, "items": items}
    listed = {"status": 200, "response": response}
    with playing(listed, listed, "get node", "401") as (_, url):
        cluster = cluster_at(url)
        assert cluster.size() == 2
        assert cluster.owners([("", "gpu1"), ("", "gone")]) == {("", "gpu1"): "nobody"}
        with pytest.raises(UnknownError, match="401: Unauthorized"):
            cluster.size()
