"""A storm on 100 nodes: never more than the budget, the breaker once, nothing foreign."""

from __future__ import annotations

import dataclasses
import random

import pytest

from fake_kubernetes import FakeKubernetes, serving
from kubernetes_cases import DirectApi, actions_of, cluster_at
from peerwatch_responder.actions.kubernetes.cluster import KubernetesCluster, KubernetesOptions
from peerwatch_responder.run import servers
from peerwatch_responder.run.books import Books, Unwritten
from peerwatch_responder.run.orders import obey
from peerwatch_responder.run.responder import Responder
from peerwatch_responder.settings.config import ResponderConfig, ServerConfig
from peerwatch_responder.settings.load import Settings
from peerwatch_responder.settings.policy import BreakerConfig, PolicyConfig, RuleConfig
from response_cases import NOW, alert

RULE = RuleConfig(name="out", match={"severity": "critical"}, do=("cordon", "evict"))
NAMES = ("PeerwatchFaultyNode", "PeerwatchXid", "NodeDown", "LinkDown", "CheckFailed")


class Remembering(Unwritten):
    """A journal that a test reads."""

    def __init__(self, clock):
        super().__init__(clock)
        self.kinds = []

    def append(self, kind, **data):
        self.kinds.append(kind)
        return super().append(kind, **data)


class Site:
    """A responder over a fleet, at a time that the test says."""

    def __init__(self, monkeypatch, fake, cluster, **policy):
        self.fake, self.now, self.firing = fake, NOW, {}
        self.journal = Remembering(self.clock)
        config = ResponderConfig(
            dry_run=False,
            alertmanager=ServerConfig(url="http://alertmanager"),
            policy=PolicyConfig(rules=(RULE,), **policy),
        )
        self.actions = actions_of(cluster)
        settings = Settings(config, cluster, self.actions, frozenset({"cordon"}))
        self.responder = Responder(settings, Books(self.journal, ()), self.clock)
        monkeypatch.setattr(servers, "firing", lambda _: frozenset(self.firing))

    def clock(self):
        return self.now

    def hear(self, *alerts):
        self.firing |= {each.fingerprint: each for each in alerts if each.is_firing}
        self.responder.receive(alerts)

    def cycle(self, seconds=5.0):
        plan = self.responder.cycle()
        self.responder.join(60)
        self.now += seconds
        return plan

    @property
    def cordoned(self):
        return {name for name, each in self.fake.nodes.items() if each["spec"].get("unschedulable")}

    @property
    def reasons(self):
        return {each.reason for each in self.responder.plan.decisions}


@pytest.fixture
def fake():
    fleet = FakeKubernetes()
    fleet.is_graceful = False
    for number in range(100):
        fleet.node(f"gpu{number:02}")
        fleet.pod(f"job{number:02}-worker-0", f"gpu{number:02}")
    return fleet


@pytest.fixture
def site(monkeypatch, fake):
    def make(**policy):
        cluster = KubernetesCluster(KubernetesOptions(), DirectApi(fake), own_node="gpu99")
        return Site(monkeypatch, fake, cluster, **policy)

    return make


def storm(start=0, nodes=100, names=NAMES):
    """Return an alert of each name on each node, each node with a job of its own."""
    return [
        alert(f"gpu{number:02}", f"ml/job{number:02}", name=name)
        for number in range(start, start + nodes)
        for name in names
    ]


def test_500_alerts_on_100_nodes_trip_the_breaker_once_and_do_nothing(site, fake):
    ours = site()
    alerts = storm()
    assert len(alerts) == 500
    random.Random(7).shuffle(alerts)
    for part in range(10):
        ours.hear(*alerts[50 * part : 50 * (part + 1)])
    for _ in range(10):
        ours.cycle()
    assert ours.journal.kinds.count("tripped") == 1
    assert "planned" not in ours.journal.kinds
    assert "breaker" in ours.reasons
    assert fake.acted == []


def test_without_a_breaker_the_budget_holds(site, fake):
    ours = site(breaker=BreakerConfig(nodes=1000), repeat_seconds=0)
    ours.hear(*storm())
    for _ in range(30):
        ours.cycle(120)
        assert len(ours.cordoned) <= 2
    # Two of a hundred nodes may be out at once, however many alerts there are.
    assert len(ours.cordoned) == 2
    assert sorted(each.split()[0] for each in fake.acted) == ["evict", "evict", "patch", "patch"]


def test_a_rack_is_no_node(site, fake):
    """All nodes of a job at once: that is a switch."""
    ours = site(breaker=BreakerConfig(nodes=1000))
    ours.hear(*[alert(f"gpu{number:02}", "ml/job") for number in range(8)])
    for _ in range(5):
        ours.cycle()
    assert ours.reasons == {"several_suspects"}
    assert fake.acted == []


def test_a_checker_that_calls_every_node_bad_is_stopped(site, fake):
    """One node after the other, slowly enough that none looks like many."""
    ours = site()
    for number in range(60):
        ours.hear(alert(f"gpu{number:02}", f"ml/job{number:02}", age=60 - number * 60))
        ours.cycle(60)
    assert ours.journal.kinds.count("tripped") == 1
    assert len(ours.cordoned) <= 2
    assert len(fake.acted) <= 4


def test_two_senders_in_any_order_have_one_effect(site, fake):
    ours = site()
    once = alert("gpu07", "ml/job07")
    for _ in range(6):
        ours.hear(once, once)
        ours.cycle()
    assert fake.acted == ["patch gpu07", "evict ml/job07-worker-0"]


def test_what_is_foreign_or_protected_is_not_touched(site, fake):
    ours = site(breaker=BreakerConfig(nodes=1000))
    labels = fake.nodes["gpu01"]["metadata"]["labels"]
    labels["node-role.kubernetes.io/control-plane"] = ""
    fake.nodes["gpu02"]["metadata"]["labels"]["peerwatch/managed"] = "false"
    fake.nodes["gpu03"]["spec"]["unschedulable"] = True
    fake.nodes["gpu04"]["metadata"]["deletionTimestamp"] = "2026-11-21T01:40:34Z"
    del fake.nodes["gpu05"]
    nodes = ("gpu01", "gpu02", "gpu03", "gpu04", "gpu05", "gpu99")
    ours.hear(*[alert(node, f"ml/job{node[3:]}") for node in nodes])
    for _ in range(3):
        ours.cycle()
    decided = {each.alert.node: each.reason for each in ours.responder.plan.decisions}
    assert decided.pop("gpu05") == "owner_unknown"
    # What is refused is written down, and is answered from then on.
    assert set(decided.values()) == {"answered"}
    told = {each.node: each.text for each in ours.responder.state.responses.values()}
    assert {node for node, text in told.items() if "protected" in text} == {
        *("gpu01", "gpu02", "gpu99")
    }
    assert {node for node, text in told.items() if "somebody else" in text} == {"gpu03", "gpu04"}
    assert fake.acted == []


@pytest.mark.parametrize("fault", ["cut", "half", 500, 503, 429, 403])
def test_a_server_that_cannot_be_asked_stops_everything(monkeypatch, fake, fault):
    fake.fault = lambda *_: fault
    with serving(fake) as url:
        ours = Site(monkeypatch, fake, cluster_at(url))
        ours.hear(alert("gpu07", "ml/job07"))
        ours.cycle()
        assert ours.reasons == {"owner_unknown"}
        assert "API server" in ours.responder.unknown["cluster"] or fault == 403
        assert fake.acted == []
        fake.fault = lambda *_: None
        ours.cycle()
        assert fake.acted == ["patch gpu07", "evict ml/job07-worker-0"]


def test_undo_restores_the_node_and_a_person_who_uncordons_is_respected(site, fake):
    ours = site()
    before = fake.plain("gpu07")
    ours.hear(alert("gpu07", "ml/job07"))
    ours.cycle()
    assert fake.plain("gpu07") != before
    (response,) = ours.responder.state.responses.values()
    assert obey({"order": "undo", "key": response.key}, ours.responder.books, ours.actions)
    assert fake.plain("gpu07") == before

    ours.hear(alert("gpu08", "ml/job08"))
    ours.cycle()
    assert ours.cordoned == {"gpu08"}
    assert ours.responder.state.responses[_key(ours, "gpu08")].status == "done"
    del fake.nodes["gpu08"]["spec"]["unschedulable"]
    ours.cycle()
    assert ("", "gpu08") in ours.responder.state.released
    ours.now += 7200
    ours.hear(dataclasses.replace(alert("gpu08", "ml/job08"), starts_at=ours.now - 60))
    acted = list(fake.acted)
    ours.cycle()
    assert fake.acted == acted
    assert any(each.reason == "released" for each in ours.responder.plan.decisions)


def _key(ours, node):
    return next(each.key for each in ours.responder.state.responses.values() if each.node == node)


def test_alerts_that_are_old_or_resolved_do_nothing_after_a_restart(site, fake):
    ours = site()
    ours.hear(alert("gpu07", "ml/job07", age=4000), alert("gpu08", "ml/job08", ended=NOW - 10))
    ours.cycle()
    assert fake.acted == []
