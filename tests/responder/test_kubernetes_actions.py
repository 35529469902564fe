"""Actions on Kubernetes: one mark each, undone byte for byte, and nothing foreign is touched."""

from __future__ import annotations

import dataclasses
import json

import pytest
from pydantic import ValidationError

from fake_kubernetes import RULES, FakeKubernetes, serving
from kubernetes_cases import TARGET, actions_at, api_at
from peerwatch_responder.action import (
    AmbiguousError,
    LaterError,
    RejectedError,
    UnknownError,
    registered_actions,
)
from peerwatch_responder.actions.kubernetes.evict import EvictOptions

MARKS = ("cordon", "taint", "condition")


@pytest.fixture
def api():
    fake = FakeKubernetes()
    fake.node("gpu1")
    fake.node("gpu2", unschedulable=True)
    return fake


@pytest.fixture
def url(api):
    with serving(api) as address:
        yield address


def the_step(url, name, target=TARGET):
    (step,) = actions_at(url)[name].steps(target)
    return step


def done(url, name, target=TARGET):
    """Do the one step of an action as the responder does; return what it found before."""
    step = the_step(url, name, target)
    found = step.inspect()
    assert found.status == "open", found
    # As it comes back from the journal.
    before = json.loads(json.dumps(dict(found.before)))
    step.do(before)
    assert step.inspect().status == "done"
    return before


def undo(url, name, before, target=TARGET):
    return actions_at(url)[name].undo(target, name, before)


def test_they_are_registered_with_the_cluster_they_need():
    known = {name: each for name, each in registered_actions().items() if "kubernetes" in name}
    names = ("condition", "cordon", "event", "evict", "taint")
    assert list(known) == [f"kubernetes_{name}" for name in names]
    assert {each.cluster for each in known.values()} == {"kubernetes"}
    out = {name for name, each in known.items() if each.takes_out}
    assert out == {"kubernetes_cordon", "kubernetes_taint"}


@pytest.mark.parametrize("name", MARKS)
def test_a_mark_is_set_once_and_undone_byte_for_byte(api, url, name):
    before_all = api.plain("gpu1")
    before = done(url, name)
    marked = api.plain("gpu1")
    assert TARGET.key in marked
    assert the_step(url, name).do(before)
    assert len(api.acted) == 1
    undo(url, name, before)
    assert api.plain("gpu1") == before_all != marked
    assert undo(url, name, before) == "the mark is not ours any more, and stays"
    assert len(api.acted) == 2


def test_all_marks_together_are_undone_in_reverse(api, url):
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    api.nodes["gpu1"]["spec"]["taints"] = [taint]
    before_all = api.plain("gpu1")
    befores = [(name, done(url, name)) for name in MARKS]
    assert taint in api.nodes["gpu1"]["spec"]["taints"]
    for name, before in reversed(befores):
        undo(url, name, before)
    assert api.plain("gpu1") == before_all


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("cordon", {"spec": {"unschedulable": True}}),
        (
            "taint",
            {
                "spec": {
                    "taints": [{"key": "peerwatch/faulty", "value": "x", "effect": "NoSchedule"}]
                }
            },
        ),
        ("condition", {"status": {"conditions": [{"type": "PeerwatchFault", "status": "True"}]}}),
    ],
)
def test_what_another_has_set_stays(api, url, name, change):
    api.nodes["gpu1"].update(change)
    before_all = api.plain("gpu1")
    step = the_step(url, name)
    assert step.inspect().status == "other"
    with pytest.raises(RejectedError):
        step.do({"uid": "uid-of-gpu1"})
    assert undo(url, name, {"uid": "uid-of-gpu1"}) == "the mark is not ours any more, and stays"
    assert api.plain("gpu1") == before_all
    assert api.acted == []


@pytest.mark.parametrize("name", MARKS)
@pytest.mark.parametrize("node", ["gone", "Gone", "..", "", "a/b", "x" * 300])
def test_a_node_that_is_not_there_is_left_alone(api, url, name, node):
    target = dataclasses.replace(TARGET, node=node)
    step = the_step(url, name, target)
    assert step.inspect().status == "other"
    with pytest.raises(RejectedError, match="gone"):
        step.do({})
    assert undo(url, name, {}, target) == "the node is gone"
    assert api.acted == []


@pytest.mark.parametrize("name", MARKS)
def test_a_node_of_the_same_name_is_another_one(api, url, name):
    before = done(url, name)
    api.nodes["gpu1"]["metadata"]["uid"] = "another"
    assert undo(url, name, before) == "the node is another one by now"


@pytest.mark.parametrize("name", MARKS)
def test_hands_off_a_node_that_says_so(api, url, name):
    api.nodes["gpu1"]["metadata"]["labels"]["peerwatch/managed"] = "false"
    assert the_step(url, name).inspect().status == "other"


def test_a_node_that_was_changed_since_it_was_looked_at_is_not_touched(api, url):
    step = the_step(url, "cordon")
    found = step.inspect()
    api.nodes["gpu1"]["metadata"]["annotations"]["peerwatch/cordoned-by"] = "an older response"
    with pytest.raises(RejectedError, match="changed since"):
        step.do(found.before)
    assert api.acted == []


def test_an_older_mark_of_ours_is_put_back(api, url):
    """A person uncordoned the node, which leaves our annotations."""
    api.nodes["gpu1"]["metadata"]["annotations"]["peerwatch/cordoned-by"] = "older"
    before_all = api.plain("gpu1")
    before = done(url, "cordon")
    undo(url, "cordon", before)
    assert api.plain("gpu1") == before_all


def test_an_earlier_condition_is_put_back_with_all_its_fields(api, url):
    earlier = {"type": "PeerwatchFault", "status": "False", "reason": "Healthy", "severity": "low"}
    api.nodes["gpu1"]["status"]["conditions"].insert(0, earlier)
    before_all = api.plain("gpu1")
    before = done(url, "condition")
    assert before["condition"] == earlier
    undo(url, "condition", before)
    assert api.plain("gpu1") == before_all


def test_a_change_between_reading_and_writing_is_a_conflict_and_tried_again(api, url):
    step = the_step(url, "cordon")
    found = step.inspect()

    def changed(method, path):
        if method == "PATCH":
            api.nodes["gpu1"]["metadata"]["resourceVersion"] = "9999"
            api.fault = lambda *_: None

    api.fault = changed
    with pytest.raises(LaterError, match="modified"):
        step.do(found.before)
    assert api.acted == []
    assert step.do(found.before) == "200"


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        ("cordon", "patch nodes"),
        ("taint", "patch nodes"),
        ("condition", "patch nodes/status"),
        ("event", "create events"),
    ],
)
def test_a_right_that_is_missing_is_named(api, url, name, verb):
    step = the_step(url, name)
    found = step.inspect()
    missing, resource = verb.split()
    kept = [each for each in RULES if resource not in each["resources"]]
    api.rules = [*kept, {"resources": ["nodes"], "verbs": {"get", "list"} - {missing}}]
    with pytest.raises(RejectedError, match=f"service account may not {verb}: 403"):
        step.do(found.before)
    api.rules = ()
    if name != "event":
        with pytest.raises(UnknownError, match="may not get nodes: 403"):
            step.inspect()
    assert api.acted == []


@pytest.mark.parametrize("name", MARKS)
@pytest.mark.parametrize("fault", ["act_cut", "half", "act_500"])
def test_an_answer_that_does_not_come_is_looked_for(api, url, name, fault):
    step = the_step(url, name)
    found = step.inspect()

    def failing(method, path):
        return fault if method == "PATCH" else None

    api.fault = failing
    step.do(found.before)
    assert len(api.acted) == 1
    api.fault = lambda *_: None
    assert step.inspect().status == "done"
    api.fault = failing
    undo(url, name, found.before)
    assert len(api.acted) == 2


@pytest.mark.parametrize("fault", ["cut", 500, 502, 503])
def test_what_was_not_done_is_tried_later_after_a_look(api, url, fault):
    step = the_step(url, "cordon")
    found = step.inspect()
    api.fault = lambda method, _: fault if method == "PATCH" else None
    with pytest.raises(LaterError, match="It was not done"):
        step.do(found.before)
    assert api.acted == []


def test_what_cannot_be_looked_at_any_more_needs_a_person(api, url):
    step = the_step(url, "cordon")
    found = step.inspect()

    def failing(method, path):
        if method == "PATCH":
            api.fault = lambda *_: "cut"
            return "act_cut"
        return None

    api.fault = failing
    with pytest.raises(AmbiguousError, match="could not be learnt"):
        step.do(found.before)


def test_a_server_that_acts_and_answers_too_late(api, url):
    """The request is cut by our own limit, and the node looked at."""
    (step,) = actions_at(url)["cordon"].steps(TARGET)
    found = step.inspect()
    impatient = dataclasses.replace(step, api=api_at(url, seconds=2.0))
    api.fault = lambda method, _: "late" if method == "PATCH" else None
    try:
        assert "No answer came to patch nodes" in impatient.do(found.before)
    finally:
        api.released.set()
    assert api.acted == ["patch gpu1"]


@pytest.mark.parametrize("status", [400, 422])
def test_a_request_that_is_wrong_is_not_repeated(api, url, status):
    step = the_step(url, "cordon")
    found = step.inspect()
    api.fault = lambda method, _: status if method == "PATCH" else None
    with pytest.raises(RejectedError, match=str(status)):
        step.do(found.before)


def test_throttling_and_a_token_that_is_renewed_are_waited_for(api, url):
    step = the_step(url, "cordon")
    found = step.inspect()
    for status in (429, 401):
        api.fault = lambda method, _, status=status: status if method == "PATCH" else None
        with pytest.raises(LaterError, match=str(status)):
            step.do(found.before)


def test_an_event_has_one_name_and_stays(api, url):
    step = the_step(url, "event")
    api.fault = lambda *_: "act_cut"
    with pytest.raises(LaterError, match="No answer"):
        step.do({})
    api.fault = lambda *_: None
    assert step.do({}) == "It is written already."
    (event,) = api.events.values()
    assert event["metadata"]["name"] == "peerwatch-0123456789abcdef-faultynode"
    assert (event["involvedObject"]["name"], event["message"]) == ("gpu1", TARGET.reason)
    assert undo(url, "event", {}).startswith("an event stays")


# Evictions


@pytest.fixture
def pods(api):
    """Return the pods of the node: the job's first, then those that must stay."""
    api.nodes["gpu1"]["spec"]["unschedulable"] = True
    api.pod("llm-worker-0", "gpu1")
    api.pod("llm-worker-1", "gpu1")
    api.pod("llm-worker-2", "gpu2")
    api.pod("other-worker-0", "gpu1")
    api.pod("llm-worker-3", "gpu1", namespace="another")
    owner = [{"kind": "DaemonSet", "name": "llm", "controller": True}]
    api.pod("llm-worker-4", "gpu1", ownerReferences=owner)
    api.pod("llm-worker-5", "gpu1", annotations={"kubernetes.io/config.mirror": "x"})
    keep = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    api.pod("llm-worker-6", "gpu1", annotations=keep)
    api.pod("llm-worker-7", "gpu1", labels={"peerwatch/managed": "false"})
    api.pod("llm-worker-8", "gpu1")["status"]["phase"] = "Succeeded"
    return api.pods


def steps_of(url, target=TARGET, **options):
    return list(actions_at(url, **options)["evict"].steps(target))


def test_only_pods_of_the_job_on_the_node_are_evicted_and_waited_for(api, url, pods):
    evictions, waits = (steps_of(url)[each] for each in (slice(0, 2), slice(2, None)))
    assert [each.name.split()[1] for each in evictions] == ["ml/llm-worker-0", "ml/llm-worker-1"]
    for step in evictions:
        found = step.inspect()
        assert found.status == "open"
        assert step.do(found.before) == "201"
        assert step.do(found.before).endswith("is ending.")
        assert step.inspect().status == "done"
    assert api.acted == ["evict ml/llm-worker-0", "evict ml/llm-worker-1"]
    for step in waits:
        assert step.inspect().status == "open"
        with pytest.raises(LaterError, match=r"Pod ml/llm-worker-. has not ended yet"):
            step.do({})
    api.ended()
    assert [step.inspect().status for step in (*evictions, *waits)] == ["done"] * 4
    assert [step.do({}) for step in waits] == [
        f"Pod ml/llm-worker-{number} is gone." for number in range(2)
    ]
    assert steps_of(url) == []
    requests = [json.loads(body) for method, _, _, body in api.asked if method == "POST"]
    uids = [each["deleteOptions"]["preconditions"]["uid"] for each in requests]
    assert uids == ["uid-of-llm-worker-0", "uid-of-llm-worker-1"]


@pytest.mark.parametrize(
    ("options", "labels", "expected"),
    [
        ({"pods_by": "job_id"}, {}, ["llm-worker-0", "llm-worker-1"]),
        ({"pods_by": "job_id", "kubernetes_job_id": "pod"}, {}, []),
        ({"pods_by": "label", "label": "job-name"}, {}, ["marked"]),
        ({"pods_by": "pod"}, {"namespace": "ml", "pod": "other-worker-0"}, ["other-worker-0"]),
        ({"pods_by": "pod"}, {"namespace": "ml", "pod": "llm-worker-4"}, []),
        ({"protected_namespaces": ["ml"]}, {}, []),
    ],
)
def test_whose_pods_they_are_is_a_setting(api, url, pods, options, labels, expected):
    api.pod("marked", "gpu1", labels={"job-name": "llm"})
    target = dataclasses.replace(TARGET, labels=labels)
    found = [each.pod.name for each in steps_of(url, target, **options)]
    assert found == expected * 2


@pytest.mark.parametrize(
    ("options", "target"),
    [
        ({}, dataclasses.replace(TARGET, job_id="")),
        ({"pods_by": "label", "label": "x"}, dataclasses.replace(TARGET, job_id="")),
        ({"pods_by": "pod"}, dataclasses.replace(TARGET, labels={"pod": "llm-worker-0"})),
    ],
)
def test_where_the_alert_does_not_say_whose_pods_none_is_evicted(api, url, pods, options, target):
    (step,) = steps_of(url, target, **options)
    assert step.inspect().status == "other"
    with pytest.raises(RejectedError, match="does not say whose"):
        step.do({})
    assert api.acted == []


def test_a_disruption_budget_is_waited_for_and_names_the_pod(api, url, pods):
    step = steps_of(url)[0]
    api.budgets["ml", "llm"] = {"needed": 3, "healthy": 3}
    with pytest.raises(LaterError, match=r"Pod ml/llm-worker-0: .*budget llm needs 3 healthy"):
        step.do({})
    assert api.acted == []
    api.budgets["ml", "llm"]["healthy"] = 4
    assert step.do({}) == "201"


def test_a_pod_of_the_same_name_is_another_one(api, url, pods):
    step = steps_of(url)[0]
    pods["ml", "llm-worker-0"]["metadata"]["uid"] = "another"
    assert step.inspect().status == "done"
    assert step.do({}) == "Pod ml/llm-worker-0 is gone."
    assert api.acted == []


def test_a_pod_that_is_replaced_between_look_and_eviction_stays(api, url, pods):
    """The uid goes with the request: the server itself refuses."""
    step = steps_of(url)[0]

    def replaced(method, path):
        if method == "POST":
            pods["ml", "llm-worker-0"]["metadata"]["uid"] = "another"

    api.fault = replaced
    with pytest.raises(LaterError, match="Precondition failed"):
        step.do({})
    assert api.acted == []
    assert step.do({}) == "Pod ml/llm-worker-0 is gone."


def test_nothing_is_evicted_from_a_node_that_a_person_has_put_back(api, url, pods):
    step = steps_of(url)[0]
    del api.nodes["gpu1"]["spec"]["unschedulable"]
    with pytest.raises(RejectedError, match="a person has put it back"):
        step.do({})
    done(url, "taint")
    assert step.do({}) == "201"


@pytest.mark.parametrize("fault", ["act_cut", "half", "act_500"])
def test_an_eviction_whose_answer_is_lost_is_looked_for(api, url, pods, fault):
    step = steps_of(url)[0]
    api.fault = lambda method, _: fault if method == "POST" else None
    assert "is ending" in step.do({}) or fault == "half"
    assert api.acted == ["evict ml/llm-worker-0"]


def test_two_budgets_for_one_pod_need_a_person(api, url, pods):
    step = steps_of(url)[0]
    text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not"
    api.fault = lambda method, _: (500, text) if method == "POST" else None
    with pytest.raises(RejectedError, match="more than one"):
        step.do({})


def test_a_grace_period_of_the_settings_goes_with_the_request(api, url, pods):
    steps_of(url, grace_seconds=77)[0].do({})
    body = json.loads(next(body for method, _, _, body in api.asked if method == "POST"))
    assert body["deleteOptions"]["gracePeriodSeconds"] == 77


@pytest.mark.parametrize(
    "options",
    [
        {"pods_by": "anything"},
        {"pods_by": "label"},
        {"kubernetes_job_id": "("},
        {"kubernetes_job_id": "no group"},
        {"grace_seconds": 0},
        {"force": True},
    ],
)
def test_settings_with_mistakes_are_refused(options):
    with pytest.raises(ValidationError):
        EvictOptions(**options)
