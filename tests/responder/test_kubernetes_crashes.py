"""One effect on Kubernetes per fault: crashes at every step, lost answers, nodes full of marks."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import random

import pytest

from fake_kubernetes import FakeKubernetes
from kubernetes_cases import TARGET, DirectApi, actions_of
from peerwatch_responder.actions.kubernetes.cluster import KubernetesCluster, KubernetesOptions
from peerwatch_responder.audit.journal import Journal
from peerwatch_responder.audit.replay import state_of
from peerwatch_responder.policy.state import DoneStep
from peerwatch_responder.run.execute import Execution, Patience
from peerwatch_responder.run.undo import undo
from response_cases import response

ACTIONS = ("event", "cordon", "taint", "condition", "evict")
PODS = ("llm-worker-0", "llm-worker-1", "llm-worker-2")
PLANNED = {
    "key": TARGET.key,
    "cluster": "",
    "node": "gpu1",
    "job_id": "ml/llm",
    "actions": list(ACTIONS),
    "fingerprint": "f" * 16,
    "starts_at": 100.0,
}
# Each of them once: the event has a name of its own.
EFFECTS = sorted(
    [
        *("event peerwatch-0123456789abcdef-faultynode", "patch gpu1", "patch gpu1"),
        *("patch gpu1/status", *(f"evict ml/{name}" for name in PODS)),
    ]
)


class Killed(BaseException):
    """The process dies here."""


def fleet():
    fake = FakeKubernetes()
    fake.node("gpu1", taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}])
    fake.node("gpu2")
    for name in PODS:
        fake.pod(name, "gpu1")
    fake.pod("other-worker-0", "gpu1")
    fake.pod("llm-worker-3", "gpu2")
    return fake


def actions_on(fake, dies=lambda: None, fails=lambda: False):
    api = DirectApi(fake, dies, fails)
    return actions_of(KubernetesCluster(KubernetesOptions(), api, own_node=""))


class Time:
    """A time that passes when somebody waits, as pods end then."""

    def __init__(self, fake):
        self.fake, self.now = fake, 0.0

    def wait(self, seconds):
        self.now += seconds
        self.fake.ended()
        return False


def execute(planned, fake, actions, write, seconds=600.0):
    time = Time(fake)
    patience = Patience(seconds, time.wait, clock=lambda: time.now)
    return Execution(planned, TARGET, actions, write, patience).run()


class DyingJournal(Journal):
    """Dies before or after rows are written."""

    dies = None

    def append(self, kind, **data):
        DyingJournal.dies()
        row = super().append(kind, **data)
        DyingJournal.dies()
        return row


def life(path, fake, dies):
    """Run the program until it has nothing to do; return how the response ended."""
    DyingJournal.dies = staticmethod(dies)
    with DyingJournal(path) as journal:
        state = state_of(journal.rows)
        if TARGET.key not in state.responses:
            journal.append("planned", **PLANNED)
            return None
        planned = state.responses[TARGET.key]
        if planned.status not in {"planned", "acting"}:
            return planned
        actions = actions_on(fake, dies)
        status, text = execute(
            planned, fake, actions, lambda **data: journal.append("step", **data)
        )
        journal.append("ended", key=TARGET.key, status=status, text=text)
        return None


@pytest.mark.parametrize("part", range(5))
def test_one_effect_in_500_runs_full_of_crashes(tmp_path, part, monkeypatch):
    # That a row is on the disk is another test; here it would only take time.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    deaths = 0
    for seed in range(100):
        fake, chance = fleet(), random.Random(1000 * part + seed)
        before = fake.plain("gpu1")

        def dies(chance=chance):
            if chance.random() < 0.15:
                raise Killed

        path = tmp_path / f"{seed}.jsonl"
        ended = None
        while ended is None:
            try:
                ended = life(path, fake, dies)
            except Killed:
                deaths += 1
        assert ended.status == "done", ended.text
        assert sorted(fake.acted) == EFFECTS
        assert {name for _, name in fake.pods} == {"other-worker-0", "llm-worker-3"}
        told = list(undo(ended, TARGET, actions_on(fake)))
        assert all(is_undone for _, is_undone in told)
        assert fake.plain("gpu1") == before
    assert deaths > 500


@pytest.mark.parametrize("chance", [0.1, 0.4])
def test_one_effect_where_answers_are_lost(chance):
    """Lost before it acted or after, also of a look: nothing is done twice, nothing is guessed."""
    ends = []
    for seed in range(100):
        fake, dice = fleet(), random.Random(seed)
        before = fake.plain("gpu1")
        actions = actions_on(fake, fails=lambda dice=dice: dice.random() < chance)
        rows = []
        planned = dataclasses.replace(response(status="planned", key=TARGET.key), actions=ACTIONS)
        status, _ = execute(planned, fake, actions, lambda rows=rows, **data: rows.append(data))
        ends.append(status)
        acted = sorted(fake.acted)
        assert acted == EFFECTS if status == "done" else set(acted) <= set(EFFECTS)
        steps = {(each["action"], each["step"]): each for each in rows}
        done = dataclasses.replace(
            planned,
            steps=tuple(
                DoneStep(*name, each["phase"] == "done", each["before"])
                for name, each in steps.items()
            ),
        )
        assert all(undone for _, undone in undo(done, TARGET, actions_on(fake)))
        assert fake.plain("gpu1") == before
    assert ends.count("done") > 90


def marked(fake, dice):
    """Give a node marks of others; return whether it is out by them."""
    node = fake.node("gpu1", {"rack": "7"})
    if dice.random() < 0.3:
        node["spec"]["unschedulable"] = True
    others = ["nvidia.com/gpu", "peerwatch/faulty", "dedicated", "ToBeDeletedByClusterAutoscaler"]
    chosen = dice.sample(others, dice.randrange(4))
    taints = [{"key": key, "value": "x", "effect": "NoSchedule"} for key in chosen]
    if taints:
        node["spec"]["taints"] = taints
    if dice.random() < 0.3:
        node["metadata"]["annotations"]["peerwatch/cordoned-by"] = "another"
    if dice.random() < 0.2:
        node["metadata"]["labels"]["peerwatch/managed"] = "false"
    for kind, status, message in (
        ("PeerwatchFault", "True", "of another program"),
        ("PeerwatchFault", "False", "healthy"),
        ("PeerwatchFault", "True", "peerwatch: an earlier one action=1"),
        ("GpuFaultSuspected", "True", "of another program"),
    ):
        conditions = node["status"]["conditions"]
        if dice.random() < 0.2 and kind not in {each["type"] for each in conditions}:
            conditions.append({"type": kind, "status": status, "message": message})


def foreign(node):
    """Return what of a node is not ours."""
    rest = copy.deepcopy(node)
    metadata, spec = rest["metadata"], rest["spec"]
    for name in ("resourceVersion", "annotations"):
        metadata.pop(name)
    cordoned_by = node["metadata"]["annotations"].get("peerwatch/cordoned-by")
    if cordoned_by == TARGET.key:
        spec.pop("unschedulable", None)
    spec["taints"] = [
        each
        for each in spec.get("taints", [])
        if each.get("value") != TARGET.key and each["key"] != "node.kubernetes.io/unschedulable"
    ]
    rest["status"]["conditions"] = [
        each
        for each in rest["status"]["conditions"]
        if each["type"] != "PeerwatchFault" or each.get("message") == "of another program"
    ]
    return json.dumps(rest, sort_keys=True)


def test_nothing_foreign_is_changed_in_200_cases():
    tried = 0
    for seed in range(200):
        dice = random.Random(seed)
        fake = FakeKubernetes()
        marked(fake, dice)
        # As the controller leaves a node that is cordoned.
        fake._changed("gpu1", False, "application/merge-patch+json", {"spec": {}})
        before, foreign_before = fake.plain("gpu1"), foreign(fake.nodes["gpu1"])
        names = dice.sample(["cordon", "taint", "condition"], 3)
        steps, rows = [], []
        for name in names:
            planned = response(status="planned", key=TARGET.key)
            planned = dataclasses.replace(planned, actions=(name,))
            execute(
                planned, fake, actions_on(fake), lambda rows=rows, **data: rows.append(data), 1.0
            )
            assert foreign(fake.nodes["gpu1"]) == foreign_before, seed
        done = [each for each in rows if each["phase"] == "done"]
        tried += len(done)
        steps = tuple(DoneStep(e["action"], e["step"], True, e["before"]) for e in done)
        ended = dataclasses.replace(response(key=TARGET.key), steps=steps)
        assert all(undone for _, undone in undo(ended, TARGET, actions_on(fake)))
        assert fake.plain("gpu1") == before, seed
    assert tried > 200
