"""What is done about alerts, and why not: each rule of safety by itself, then all under a storm."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerwatch_responder.policy import alert_guards, limit_guards, node_guards
from peerwatch_responder.policy.decide import decide
from peerwatch_responder.policy.state import State, Want
from peerwatch_responder.settings.policy import PolicyConfig
from response_cases import ISOLATE, NOW, SETTINGS, alert, around, response, state


def decided(*alerts, known=None, world=None, config=SETTINGS, now=NOW):
    plan = decide(alerts, known or State(), world or around(*alerts), config, now)
    return [(each.verdict, each.reason) for each in plan.decisions]


def changed(**changes):
    return SETTINGS.model_copy(update=changes)


def test_an_alert_that_nothing_stands_against_is_answered():
    fault = alert()
    (decision,) = decide([fault], State(), around(fault), SETTINGS, NOW).decisions
    assert (decision.verdict, decision.rule, decision.actions) == ("act", "isolate", ("drain",))
    assert decision.key == fault.key(("drain",))
    assert "drain for node n1 (slow_with_peers, severity high)" in decision.text


def test_without_rules_nothing_is_done():
    assert decided(alert(), config=PolicyConfig()) == [("ignore", "no_rule")]


@pytest.mark.parametrize(
    ("labels", "matched"),
    [
        ({}, True),
        ({"name": "PeerwatchXidHardware"}, True),
        ({"name": "PeerwatchJobStalled"}, False),
        ({"name": "XPeerwatchFaultyNode"}, False),
        ({"severity": "warning"}, False),
        ({"severity": ""}, False),
    ],
)
def test_a_rule_matches_whole_values_of_labels(labels, matched):
    assert decided(alert(**labels)) == [("act", "rule") if matched else ("ignore", "no_rule")]


@pytest.mark.parametrize(
    ("name", "condition", "matched"),
    [
        ("PeerwatchGpuMissing", "high", True),
        ("PeerwatchGpuMissing", "low", False),
        ("PeerwatchGpuResetPending", "low", True),
        ("PeerwatchGpuResetPending", "high", False),
        ("PeerwatchGpuResetPending", None, True),
        # It says nothing of a node's condition.
        ("PeerwatchJobStalled", "high", False),
    ],
)
def test_a_rule_asks_what_the_alert_says_of_the_node(name, condition, matched):
    rule = ISOLATE.model_copy(update={"match": {"alertname": ".*"}, "condition": condition})
    config = changed(rules=(rule,))
    expected = ("act", "rule") if matched else ("ignore", "no_rule")
    assert decided(alert(name=name), config=config) == [expected]


def test_what_the_responder_says_itself_is_never_answered():
    own = alert(name="PeerwatchXidResponded", component="responder")
    assert decided(own) == [("ignore", "no_rule")]


def test_the_first_rule_that_matches_counts():
    other = ISOLATE.model_copy(update={"name": "other", "do": ("cordon",)})
    fault = alert()
    config = changed(rules=(other, ISOLATE))
    (decision,) = decide([fault], State(), around(fault), config, NOW).decisions
    assert (decision.rule, decision.actions) == ("other", ("cordon",))


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (alert(node=""), ("ignore", "no_node")),
        (alert(ended=NOW - 1), ("ignore", "resolved")),
        (alert(age=1801), ("refuse", "too_old")),
        (alert(age=-301), ("wait", "in_future")),
        (alert(age=29), ("wait", "settling")),
    ],
)
def test_what_the_alert_itself_says(fault, expected):
    assert decided(fault) == [expected]


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        ({"firing": None}, ("wait", "firing_unknown")),
        ({"firing": frozenset()}, ("wait", "not_firing")),
        ({"owners": {}}, ("wait", "owner_unknown")),
        ({"owners": {("", "n1"): "unknown"}}, ("wait", "owner_unknown")),
        ({"owners": {("", "n1"): "other"}}, ("refuse", "other_owner")),
        ({"protected": frozenset({("", "n1")})}, ("refuse", "protected")),
    ],
)
def test_what_is_unknown_or_not_ours_is_not_touched(world, expected):
    fault = alert()
    assert decided(fault, world=around(fault, **world)) == [expected]


def test_nodes_are_protected_by_whole_names():
    config = changed(protected_nodes=("head-.*", "n1"))
    assert decided(alert("head-3"), config=config) == [("refuse", "protected")]
    assert decided(alert("n1"), config=config) == [("refuse", "protected")]
    assert decided(alert("n11"), config=config) == [("act", "rule")]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("planned", "under_way"),
        ("acting", "under_way"),
        ("done", "answered"),
        ("failed", "answered"),
        ("stuck", "answered"),
        ("refused", "answered"),
        ("undone", "answered"),
    ],
)
def test_an_alert_is_answered_once(status, expected):
    fault = alert()
    known = state(response(status=status, key=fault.key(("drain",))))
    assert decided(fault, known=known) == [("ignore", expected)]


def test_the_same_alert_of_two_senders_is_answered_once():
    assert sorted(decided(alert(), alert())) == [("act", "rule"), ("ignore", "under_way")]


def test_an_alert_that_fires_again_is_another_one():
    again = alert(age=40)
    known = state(response(status="undone", ago=7200, returned=True, key=alert().key(("drain",))))
    assert decided(again, known=known) == [("act", "rule")]


def test_two_alerts_of_a_node_are_one_fault():
    xid = alert(name="PeerwatchXidHardware", age=70)
    assert decided(xid, alert()) == [("act", "rule"), ("ignore", "already_out")]


def test_a_node_is_not_answered_twice_within_an_hour():
    told = dataclasses.replace(response(ago=3599), takes_out=False)
    assert decided(alert(), known=state(told)) == [("wait", "answered_lately")]
    told = dataclasses.replace(response(ago=3600), takes_out=False)
    assert decided(alert(), known=state(told)) == [("act", "rule")]
    refused = response(status="refused", ago=5)
    assert decided(alert(), known=state(refused)) == [("act", "rule")]


def test_only_some_actions_take_a_node_out():
    a, b = alert("n1", "j1"), alert("n2", "j2")
    told = around(a, b, nodes=None, take_out=frozenset({"cordon"}))
    assert decided(a, b, world=told) == [("act", "rule")] * 2
    out = around(a, b, nodes=None, take_out=frozenset({"drain"}))
    assert sorted(decided(a, b, world=out)) == [("act", "rule"), ("wait", "budget_concurrent")]


def test_a_node_that_came_back_can_be_taken_out_again():
    assert decided(alert(), known=state(response())) == [("ignore", "already_out")]
    assert decided(alert(), known=state(response(returned=True))) == [("act", "rule")]


@pytest.mark.parametrize(("ago", "expected"), [(86_399, "released"), (86_400, "rule")])
def test_a_person_who_put_a_node_back_is_heeded_for_a_day(ago, expected):
    known = state(released={("", "n1"): NOW - ago})
    assert [reason for _, reason in decided(alert(), known=known)] == [expected]


def test_after_two_attempts_a_person_is_needed():
    day = 86_400.0
    first = response(ago=6 * day, returned=True)
    second = response(ago=3 * day, status="failed", returned=True)
    assert decided(alert(), known=state(first)) == [("act", "rule")]
    assert decided(alert(), known=state(first, second)) == [("refuse", "attempts")]
    older = response(ago=7 * day, returned=True)
    assert decided(alert(), known=state(older, second)) == [("act", "rule")]
    never_tried = response(ago=2 * day, status="refused")
    assert decided(alert(), known=state(never_tried, second)) == [("act", "rule")]


@pytest.mark.parametrize(
    ("advice", "expected"),
    [
        ({("", "j1", "n1"): frozenset({"isolate"})}, ("act", "rule")),
        # Of two faults one is enough, whichever was diagnosed last.
        ({("", "j1", "n1"): frozenset({"isolate", "ask"})}, ("act", "rule")),
        ({("", "j1", "n1"): frozenset({"ask", "none"})}, ("wait", "advice")),
        ({("", "j1", "n2"): frozenset({"isolate"})}, ("wait", "advice")),
        ({}, ("wait", "advice")),
    ],
)
def test_a_rule_may_want_the_root_diagnosis_to_agree(advice, expected):
    config = changed(rules=(ISOLATE.model_copy(update={"advice": ("isolate", "replace")}),))
    fault = alert()
    assert decided(fault, world=around(fault, advice=advice), config=config) == [expected]


def test_of_several_nodes_of_a_job_at_once_none_is_taken_out():
    assert decided(alert("n1"), alert("n2")) == [("wait", "several_suspects")] * 2
    two = changed(suspects_per_job=2)
    assert decided(alert("n1"), alert("n2"), config=two) == [
        ("act", "rule"),
        ("wait", "budget_job"),
    ]


def test_nodes_of_different_jobs_or_clusters_are_no_suspects_together():
    assert decided(alert("n1", "j1"), alert("n2", "j2")) == [("act", "rule")] * 2
    a, b = alert("n1", cluster="a"), alert("n2", cluster="b")
    assert decided(a, b) == [("act", "rule")] * 2
    assert decided(alert("n1", ""), alert("n2", "")) == [("act", "rule")] * 2


def test_what_is_paused_waits():
    assert decided(alert(), known=state(paused="upgrade")) == [("wait", "paused")]


def test_the_breaker_trips_once_and_stays():
    faults = [alert(f"n{each}", f"j{each}") for each in range(5)]
    plan = decide(faults, State(), around(*faults), SETTINGS, NOW)
    assert "5 nodes" in plan.trips
    assert {(each.verdict, each.reason) for each in plan.decisions} == {("wait", "breaker")}
    known = State(wants=plan.wants, tripped_at=NOW)
    again = decide(faults, known, around(*faults), SETTINGS, NOW + 10)
    assert again.trips is None
    assert again.wants == ()
    assert {each.reason for each in again.decisions} == {"breaker"}


def test_the_breaker_counts_nodes_within_its_time():
    wants = tuple(Want(f"k{each}", "", f"m{each}", NOW - 600 + each) for each in range(5))
    fault = alert()
    plan = decide([fault], State(wants=wants), around(fault), SETTINGS, NOW)
    assert "5 nodes" in plan.trips
    later = decide([fault], State(wants=wants), around(fault), SETTINGS, NOW + 1)
    assert later.trips is None
    # The same node again is no further node.
    wants = tuple(Want(f"k{each}", "", "m", NOW - 1) for each in range(9))
    assert decide([fault], State(wants=wants), around(fault), SETTINGS, NOW).trips is None


def test_a_breaker_that_was_reset_trips_again_only_by_a_new_alert():
    faults = [alert(f"n{each}", f"j{each}") for each in range(5)]
    wants = decide(faults, State(), around(*faults), SETTINGS, NOW).wants
    plan = decide(faults, State(wants=wants), around(*faults), SETTINGS, NOW + 10)
    assert plan.trips is None
    assert [each.verdict for each in plan.decisions].count("act") == 3


@pytest.mark.parametrize("what", ["old", "unheard", "resolved", "without rule", "protected"])
def test_what_would_never_be_answered_trips_no_breaker(what):
    changes = {"old": {"age": 2000}, "resolved": {"ended": NOW}, "without rule": {"name": "Other"}}
    faults = [alert(f"n{each}", f"j{each}", **changes.get(what, {})) for each in range(9)]
    world = around(*faults)
    if what == "unheard":
        world = dataclasses.replace(world, firing=frozenset())
    if what == "protected":
        world = dataclasses.replace(world, protected=frozenset(world.owners))
    plan = decide(faults, State(), world, SETTINGS, NOW)
    assert plan.trips is None
    assert plan.wants == ()


def test_a_job_loses_one_node_an_hour():
    taken = response("n2", ago=3599, returned=True)
    assert decided(alert(), known=state(taken)) == [("wait", "budget_job")]
    assert decided(alert(job="j2"), known=state(taken)) == [("act", "rule")]
    assert decided(alert(), known=state(response("n2", ago=3600))) == [("act", "rule")]


def test_the_cluster_loses_three_nodes_an_hour():
    taken = [response(f"m{each}", f"k{each}", ago=100 + each) for each in range(3)]
    assert decided(alert(), known=state(*taken)) == [("wait", "budget_hour")]
    refused = [response("m9", "k9", "refused", ago=50)]
    assert decided(alert(), known=state(*taken[:2], *refused)) == [("act", "rule")]


@pytest.mark.parametrize(
    ("nodes", "most"), [(None, 1), (3, 1), (99, 1), (100, 2), (499, 9), (500, 10), (12_500, 10)]
)
def test_two_percent_and_ten_at_most_are_out_at_once(nodes, most):
    config = changed(budget=SETTINGS.budget.model_copy(update={"nodes_per_hour": 100}))
    fault = alert()
    out = [response(f"m{each}", f"k{each}", ago=9999) for each in range(most)]
    world = around(fault, nodes=nodes)
    assert decided(fault, known=state(*out[:-1]), world=world, config=config) == [("act", "rule")]
    assert decided(fault, known=state(*out), world=world, config=config) == [
        ("wait", "budget_concurrent")
    ]


def test_every_guard_can_object():
    """The tests above meet each guard; a new one without a test fails here."""
    names = {
        guard.__name__
        for module in (alert_guards, node_guards, limit_guards)
        for guard in module.GUARDS
    }
    public = {
        name
        for module in (alert_guards, node_guards, limit_guards)
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", "") == module.__name__
        if not name.startswith("_")
    }
    assert public - names == {"most_at_once", "nodes_of_last_hour"}


_ALERTS = st.lists(
    st.builds(
        alert,
        node=st.sampled_from([f"n{each}" for each in range(30)]),
        job=st.sampled_from(["", *(f"j{each}" for each in range(8))]),
        age=st.floats(-600, 2400),
        name=st.sampled_from(["PeerwatchFaultyNode", "PeerwatchXidHardware", "Other"]),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(rounds=st.lists(_ALERTS, max_size=6), nodes=st.none() | st.integers(1, 2000))
def test_no_storm_exceeds_a_limit(rounds, nodes):
    """Whatever comes, in whatever order: each limit holds after each plan, also all at once."""
    known = State()
    trips = 0
    for place, alerts in enumerate(rounds):
        now = NOW + 60.0 * place
        world = around(*alerts, nodes=nodes)
        plan = decide(alerts, known, world, SETTINGS, now)
        assert len(plan.decisions) == len(alerts)
        assert plan == decide(alerts[::-1], known, world, SETTINGS, now)
        acted = [each for each in plan.decisions if each.verdict == "act"]
        trips += plan.trips is not None
        added = {
            each.key: dataclasses.replace(
                response(each.alert.node, each.alert.job_id, key=each.key), planned_at=now
            )
            for each in acted
        }
        assert len(added) == len(acted)
        known = dataclasses.replace(
            known,
            responses={**known.responses, **added},
            wants=(*known.wants, *plan.wants),
            tripped_at=now if plan.trips else known.tripped_at,
        )
        assert not (acted and known.tripped_at is not None)
    taken = known.responses.values()
    assert trips <= 1
    assert len({each.node for each in taken}) == len(taken)
    assert len(taken) <= min(3, max(1, int((nodes or 0) * 0.02)))
    jobs = [each.job_id for each in taken if each.job_id]
    assert len(set(jobs)) == len(jobs)
