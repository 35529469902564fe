"""The shipped Alertmanager configuration: its routes by amtool, its timers, what silences what."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from alert_labels import (
    ABSENT,
    CONFIG,
    FINDING,
    IDLE_XID,
    NO_EXPORTERS,
    PORT_DOWN,
    READS_FAILING,
    SHARED,
    SHARED_NODE,
    STALE,
    STALE_EXPORTER,
    STALLED,
    STOPPED,
    SUSPECT,
    SYMPTOM,
    THROTTLED,
    WATCHDOG,
    XID,
    Labels,
    config,
    in_place,
    on,
)
from alertmanager_live import seconds
from peerwatch_demo.stack.servers import find_program
from test_templates import uncommented
from yaml_files import read_yaml

ROOT = Path(__file__).resolve().parents[1]


def amtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = find_program("amtool")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def test_the_configuration_is_valid():
    result = amtool("check-config", str(CONFIG))

    assert result.returncode == 0, result.stdout + result.stderr


def test_the_commented_receivers_are_valid_when_uncommented(tmp_path):
    text = uncommented(CONFIG.read_text())
    file = tmp_path / "alertmanager.yaml"
    file.write_text(text)

    result = amtool("check-config", str(file))

    receivers = {receiver["name"]: receiver for receiver in yaml.safe_load(text)["receivers"]}
    assert "pagerduty_configs" in receivers["pager"]
    assert {"slack_configs", "email_configs"} <= receivers["ticket"].keys()
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("receiver", "labels"),
    [
        ("pager", on(FINDING, "j1", "n1", "cpu_usage")),
        ("pager", on(STALLED, "j1")),
        ("pager", on(XID, "j1", "n1")),
        ("pager", in_place(SHARED, "nic", "leaf", "l1")),
        ("ticket", in_place(SHARED | {"severity": "warning"}, "nic", "leaf", "l1")),
        ("nobody", on(SHARED_NODE | {"component": "nic"}, "", "n1")),
        ("pager", on(STOPPED, "j1")),
        ("pager", READS_FAILING),
        ("pager", NO_EXPORTERS),
        ("pager", {"alertname": "SomethingElse", "severity": "critical"}),
        ("ticket", on(SUSPECT, "j1", "n1", "cpu_usage")),
        ("ticket", on(SYMPTOM, "j1")),
        ("ticket", on(IDLE_XID, "", "n1")),
        ("ticket", on(THROTTLED, "j1", "n1")),
        ("ticket", STALE),
        ("ticket", on(STALE_EXPORTER, "", "n1")),
        ("ticket", {"alertname": "SomethingElse", "severity": "info"}),
        ("ticket", {"alertname": "NoLabels"}),
        ("heartbeat", WATCHDOG),
    ],
    ids=lambda value: value if isinstance(value, str) else value["alertname"],
)
def test_the_route_leads_to_the_receiver(receiver, labels):
    pairs = [f"{name}={value}" for name, value in labels.items()]

    result = amtool(
        "config",
        "routes",
        "test",
        f"--config.file={CONFIG}",
        f"--verify.receivers={receiver}",
        *pairs,
    )

    assert result.returncode == 0, result.stdout + result.stderr


def test_every_alert_of_the_pack_reaches_the_receiver_its_severity_asks_for():
    asked = {"critical": "pager", "warning": "ticket", "info": "heartbeat"}
    silent = {"PeerwatchSharedCauseNode": "nobody", "PeerwatchResponding": "nobody"}
    for rule in shipped_alerts():
        labels = {"alertname": rule["alert"], **rule["labels"]}
        pairs = [f"{name}={value}" for name, value in labels.items()]

        result = amtool("config", "routes", "test", f"--config.file={CONFIG}", *pairs)

        receiver = silent.get(rule["alert"], asked[rule["labels"]["severity"]])
        assert receiver == result.stdout.strip(), rule["alert"]


def test_the_timers_keep_their_order():
    """The order the comments in the file explain."""
    responded, shared_cause, cause, symptom, other = [
        route for route in config()["route"]["routes"] if route["receiver"] == "pager"
    ]
    keep_firing = [
        seconds(rule["keep_firing_for"])
        for rule in shipped_alerts()
        # A shared cause lasts as long as the alerts of its nodes, which keep firing themselves.
        if rule["labels"]["role"] == "cause" and rule["alert"] != "PeerwatchSharedCause"
    ]

    # The rules' next evaluation (15 s), and then that of the rules on shared causes (5 s).
    assert 20 < seconds(cause["group_wait"]) <= 30
    assert seconds(shared_cause["group_wait"]) <= 5
    assert seconds(responded["group_wait"]) <= 5
    assert seconds(symptom["group_wait"]) > seconds(cause["group_wait"]) + 60
    assert min(keep_firing) >= 600
    assert seconds(cause["group_interval"]) >= max(keep_firing)
    assert other["matchers"] == ['severity="critical"']


def test_a_critical_symptom_waits_until_its_cause_must_have_come():
    """The comment "Timing, 1" in the file: a finding comes up to 250 s after the fault."""
    routes = config()["route"]["routes"]
    (wait,) = [r["group_wait"] for r in routes if 'role="symptom"' in r["matchers"]]
    # These compare an age with a limit in their expression.
    aged = {"PeerwatchJobStalled": 600, "PeerwatchHeartbeatOld": 300}
    for rule in shipped_alerts():
        if (rule["labels"]["severity"], rule["labels"]["role"]) == ("critical", "symptom"):
            age = aged.get(rule["alert"], 0)
            assert age == 0 or f"> {age}" in rule["expr"]

            assert age + seconds(rule.get("for", "0s")) + seconds(wait) >= 250, rule["alert"]


def test_the_watchdog_is_sent_at_every_look_at_its_group():
    (route,) = [route for route in config()["route"]["routes"] if route["receiver"] == "heartbeat"]

    assert 60 == seconds(route["group_interval"])
    # As long as the group's interval, every second look would come a moment too early.
    assert seconds(route["group_interval"]) - 5 >= seconds(route["repeat_interval"])


def test_a_server_without_exporters_silences_those_of_its_clusters_and_of_no_other():
    stale, known = on(STALE_EXPORTER, "", "n1") | {"cluster": "c1"}, {"cluster": "c2"}

    assert silenced(NO_EXPORTERS, stale)
    assert not silenced(NO_EXPORTERS | known, stale)


def test_a_response_that_is_stuck_explains_a_budget_that_is_used_up():
    own = {"role": "meta", "component": "responder", "cluster": "c1"}
    stuck = own | {"alertname": "PeerwatchResponderStuck", "severity": "critical", "node": "n7"}
    budget = own | {"alertname": "PeerwatchResponderBudgetExhausted", "severity": "warning"}

    assert silenced(stuck, budget)
    assert not silenced(budget, stuck)
    assert not silenced(stuck, budget | {"cluster": "c2"})
    # The page about the node says nothing of what was done about it.
    assert not silenced(on(XID, "j1", "n7") | {"cluster": "c1"}, stuck)


def test_a_node_that_is_answered_is_paged_once_when_that_has_ended():
    own = {"component": "responder", "cluster": "c1", "node": "n7", "job_id": "j1"}
    during = own | {"alertname": "PeerwatchResponding", "severity": "info", "role": "meta"}
    after = own | {"alertname": "PeerwatchResponded", "severity": "critical", "role": "cause"}
    for alert in (FINDING, ABSENT, XID, PORT_DOWN):
        fault = on(alert, "j1", "n7") | {"cluster": "c1"}
        assert silenced(during, fault)
        assert silenced(after, fault)
        assert not silenced(fault, after)
        # Another node has a page of its own.
        assert not silenced(during, fault | {"node": "n8"})
        assert not silenced(after, fault | {"node": "n8"})
    assert not silenced(during, after)
    # What the job suffers is explained by it.
    assert silenced(after, on(STOPPED, "j1") | {"cluster": "c1"})


@pytest.mark.parametrize(
    ("paged", "held_back"),
    [
        pytest.param(FINDING, [ABSENT, STOPPED, SYMPTOM], id="a_node_that_vanishes"),
        pytest.param(XID | {"cluster": "c1"}, [FINDING, STOPPED], id="a_gpu_with_an_xid"),
    ],
)
def test_a_detector_without_a_cluster_does_not_page_beside_the_exporters(paged, held_back):
    """Its findings have no cluster; what the exporters' metrics raise has one."""
    page = on(paged, "j1", "n7")
    others = [
        on(alert, "j1", "n7") | ({} if alert is FINDING else {"cluster": "c1"})
        for alert in held_back
    ]

    assert all(silenced(page, other) for other in others)
    assert not any(silenced(other, page) for other in others)
    # Another job is another fault.
    assert not any(silenced(page, other | {"job_id": "j2"}) for other in others)


def test_a_detector_with_a_cluster_speaks_of_that_one_only():
    finding = on(FINDING, "j1", "n7") | {"cluster": "c2"}

    assert not silenced(finding, on(STOPPED, "j1") | {"cluster": "c1"})
    assert not silenced(finding, on(ABSENT, "j1", "n7") | {"cluster": "c1"})


def test_no_two_alerts_silence_each_other():
    alerts = [
        {
            "alertname": rule["alert"],
            "node": "n1",
            **rule["labels"],
            "job_id": "" if 'job_id=""' in rule["expr"].split("\n")[0] else "j1",
        }
        for rule in shipped_alerts()
    ]
    silences = {
        (source["alertname"], source["severity"], target["alertname"], target["severity"])
        for source in alerts
        for target in alerts
        if source != target and silenced(source, target)
    }

    assert ("PeerwatchXidHardware", "critical", "PeerwatchFaultyNode", "critical") in silences
    assert set() == {pair for pair in silences if pair[2:] + pair[:2] in silences}


def silenced(source: Labels, target: Labels) -> bool:
    """Return whether one alert holds another back."""
    return any(
        matches(rule["source_matchers"], source)
        and matches(rule["target_matchers"], target)
        and all(source.get(name, "") == target.get(name, "") for name in rule.get("equal", []))
        for rule in config()["inhibit_rules"]
    )


def shipped_alerts() -> list[dict[str, Any]]:
    """Return every alert of the pack."""
    return [
        rule
        for file in sorted((ROOT / "rules").glob("*.rules.yaml"))
        for group in read_yaml(file)["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]


def matches(matchers: list[str], labels: Labels) -> bool:
    """Return whether labels satisfy all of a route's or an inhibition's matchers."""
    for matcher in matchers:
        name, sign, value = re.fullmatch(r'(\w+)(=~|!=|=)"(.*)"', matcher).groups()
        given = labels.get(name, "")
        same = bool(re.fullmatch(value, given)) if sign == "=~" else value == given
        if same == (sign == "!="):
            return False
    return True
