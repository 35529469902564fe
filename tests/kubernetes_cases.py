"""A cluster on loopback, and what the responder does to it."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import requests

from fake_kubernetes import TOKEN
from peerwatch_responder.action import Target
from peerwatch_responder.actions.kubernetes.api import Answer, Api
from peerwatch_responder.actions.kubernetes.cluster import KubernetesCluster, KubernetesOptions
from peerwatch_responder.actions.kubernetes.condition import ConditionOptions, KubernetesCondition
from peerwatch_responder.actions.kubernetes.cordon import KubernetesCordon
from peerwatch_responder.actions.kubernetes.event import EventOptions, KubernetesEvent
from peerwatch_responder.actions.kubernetes.evict import EvictOptions, KubernetesEvict
from peerwatch_responder.actions.kubernetes.server import Access, ServerOptions
from peerwatch_responder.actions.kubernetes.taint import KubernetesTaint, TaintOptions

TARGET = Target(
    *("0123456789abcdef", "", "gpu1", "ml/llm"),
    "peerwatch: PeerwatchFaultyNode since 2026-11-21T01:40Z action=0123456789abcdef",
    {"alertname": "PeerwatchFaultyNode", "node": "gpu1", "job_id": "ml/llm"},
    1_700_000_000.0,
)


def api_at(url, token=TOKEN, seconds=60.0):
    """Return a client that never waits between tries."""
    options = ServerOptions(url=url, timeout_seconds=seconds)
    return Api(options, wait=lambda _: None, reach=lambda _: Access(url, token, None))


class DirectApi(Api):
    """Asks a fake without a network between, so that hundreds of runs take seconds.

    ``dies`` is called before and after each request that changes something, ``fails`` says whether
    an answer is lost.
    """

    def __init__(self, fake, dies=lambda: None, fails=lambda: False):
        super().__init__(ServerOptions(), wait=lambda _: None)
        self.fake, self.dies, self.fails = fake, dies, fails

    def _request(self, method, path, query, body=None, content_type="application/json"):
        if method != "GET":
            self.dies()
        if self.fails():
            raise requests.exceptions.ReadTimeout
        headers = {"Content-Type": content_type, "Authorization": f"Bearer {TOKEN}"}
        address = path + (f"?{urlencode(query)}" if query else "")
        text = json.dumps(body).encode() if body is not None else b""
        status, content = self.fake.answer(method, address, headers, text)
        if method != "GET":
            self.dies()
        if self.fails():
            raise requests.exceptions.ReadTimeout
        return Answer(status, json.loads(json.dumps(content)), is_json=True, retry_after=None)


def cluster_at(url, **options):
    """Return a cluster whose lists are always new."""
    options = KubernetesOptions(**{"refresh_seconds": 0, **options})
    return KubernetesCluster(options, api_at(url), own_node="")


def actions_at(url, **evict):
    """Return all actions by their names."""
    return actions_of(cluster_at(url), **evict)


def actions_of(cluster, **evict):
    """Return all actions of a cluster by their names."""
    return {
        "cordon": KubernetesCordon(None, cluster),
        "taint": KubernetesTaint(TaintOptions(), cluster),
        "condition": KubernetesCondition(ConditionOptions(), cluster, lambda: 1_700_000_100.0),
        "event": KubernetesEvent(EventOptions(), cluster, lambda: 1_700_000_100.0),
        "evict": KubernetesEvict(EvictOptions(**evict), cluster),
    }
