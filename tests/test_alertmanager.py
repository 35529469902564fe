"""The shipped Alertmanager configuration: its routes by amtool, its timing by a real server."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from alertmanager_live import Alertmanager, alertmanager, seconds
from peerwatch_demo.stack.servers import find_program
from yaml_files import read_yaml

if TYPE_CHECKING:
    pass

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "rules" / "alertmanager.example.yaml"


# The shipped timers run this many times as fast in the live tests. What must come in time comes
# seconds before the timer it must precede, so that a busy machine keeps the order.
SPEED = 8.0
# Fast enough to see group_interval (10 m) pass.
FASTER = 40.0

NODE = {"role": "cause", "component": "node"}
FINDING = {"alertname": "PeerwatchFaultyNode", "severity": "critical", **NODE}
ABSENT = {"alertname": "PeerwatchNodeAbsent", "severity": "critical", **NODE}
PORT_DOWN = {
    "alertname": "PeerwatchNicLinkDown",
    "severity": "critical",
    "role": "cause",
    "component": "nic",
}
SHARED = {"alertname": "PeerwatchSharedCause", "severity": "critical", **NODE}
SHARED_NODE = {"alertname": "PeerwatchSharedCauseNode", "severity": "info", "role": "meta"}
EXPORTER_DOWN = {
    "alertname": "PeerwatchExporterDown",
    "severity": "warning",
    "role": "meta",
    "component": "exporter",
}
SUSPECT = {"alertname": "PeerwatchSuspectNode", "severity": "warning", **NODE}
GPU = {"role": "cause", "component": "gpu"}
XID = {"alertname": "PeerwatchXidHardware", "severity": "critical", **GPU}
IDLE_XID = {"alertname": "PeerwatchXidHardware", "severity": "warning", **GPU}
MISSING = {"alertname": "PeerwatchGpuMissing", "severity": "critical", **GPU}
IDLE_MISSING = {"alertname": "PeerwatchGpuMissing", "severity": "warning", **GPU}
THROTTLED = {
    "alertname": "PeerwatchGpuThermalThrottling",
    "severity": "warning",
    "role": "symptom",
    "component": "gpu",
}
STOPPED = {
    "alertname": "PeerwatchRdmaStoppedJob",
    "severity": "critical",
    "role": "symptom",
    "component": "job",
}
NO_EXPORTERS = {
    "alertname": "PeerwatchNoExporters",
    "severity": "critical",
    "role": "meta",
    "component": "exporter",
}
STALE_EXPORTER = {
    "alertname": "PeerwatchExporterStale",
    "severity": "warning",
    "role": "meta",
    "component": "exporter",
}
SYMPTOM = {"alertname": "PeerwatchCoverageLow", "severity": "warning", "role": "symptom"}
STALLED = {"alertname": "TrainingStalled", "severity": "critical", "role": "symptom"}
META = {"role": "meta", "component": "detector"}
BLIND = {"alertname": "PeerwatchDetectorReadsFailing", "severity": "critical", **META}
STALE = {"alertname": "PeerwatchDetectorStale", "severity": "warning", **META}
WATCHDOG = {"alertname": "PeerwatchWatchdog", "severity": "info", "role": "meta"}

Labels = dict[str, str]


def on(alert: Labels, job_id: str, node: str = "", metric: str = "") -> Labels:
    """Return the alert about a job, a node, a metric; empty labels are left out."""
    where = {"job_id": job_id, "node": node, "metric": metric}
    return alert | {name: value for name, value in where.items() if value}


def in_place(alert: Labels, kind: str, level: str = "cluster", place: str = "") -> Labels:
    """Return the alert about the nodes of a place that fail in one way."""
    return alert | {"kind": kind, "level": level} | ({"place": place} if place else {})


def shared(
    kind: str, component: str, nodes: list[str], level: str = "cluster", place: str = ""
) -> list[Labels]:
    """Return the alerts about a cause that nodes share: the page, and what holds theirs back."""
    member = in_place(SHARED_NODE | {"component": component}, kind, level, place)
    return [in_place(SHARED, kind, level, place), *(on(member, "", node) for node in nodes)]


def config() -> dict[str, Any]:
    return read_yaml(CONFIG)


def amtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = find_program("amtool")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def test_the_configuration_is_valid():
    result = amtool("check-config", str(CONFIG))

    assert result.returncode == 0, result.stdout + result.stderr


def test_the_commented_receivers_are_valid_when_uncommented(tmp_path):
    text = re.sub(
        r"^    # \w+ instead:\n((?:    # .*\n)+)",
        lambda block: re.sub(r"^    # ", "    ", block[1], flags=re.MULTILINE),
        CONFIG.read_text(),
        flags=re.MULTILINE,
    )
    file = tmp_path / "alertmanager.yaml"
    file.write_text(text)

    result = amtool("check-config", str(file))

    receivers = {receiver["name"]: receiver for receiver in yaml.safe_load(text)["receivers"]}
    assert "pagerduty_configs" in receivers["pager"]
    assert "slack_configs" in receivers["ticket"]
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
        ("pager", BLIND),
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
    silent = {"PeerwatchSharedCauseNode": "nobody"}
    for rule in shipped_alerts():
        labels = {"alertname": rule["alert"], **rule["labels"]}
        pairs = [f"{name}={value}" for name, value in labels.items()]

        result = amtool("config", "routes", "test", f"--config.file={CONFIG}", *pairs)

        receiver = silent.get(rule["alert"], asked[rule["labels"]["severity"]])
        assert receiver == result.stdout.strip(), rule["alert"]


def test_the_timers_keep_their_order():
    """The order the comments in the file explain."""
    shared_cause, cause, symptom, other = [
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


# What happens, as (second of the shipped timers, labels), and what must come of it.
EIGHT = [f"n{number}" for number in range(1, 9)]
CASES: dict[str, tuple[list[tuple[float, Labels]], dict[str, int]]] = {
    "a_leaf_switch_takes_the_ports_of_eight_nodes": (
        [
            *((0, alert) for alert in shared("nic", "nic", EIGHT, "leaf", "l1")),
            *((0, on(PORT_DOWN, "j1", node)) for node in EIGHT),
            *((0, on(FINDING, "j1", node, "absent")) for node in EIGHT[:2]),
            (30, on(STOPPED, "j1")),
        ],
        {"page": 1, "ticket": 0},
    ),
    "eight_ports_are_seen_to_share_a_cause_after_the_first_alert": (
        [
            *((0, on(PORT_DOWN, "j1", node)) for node in EIGHT),
            *((20, alert) for alert in shared("nic", "nic", EIGHT)),
        ],
        {"page": 1, "ticket": 0},
    ),
    "one_port_beside_a_healthy_rack": (
        [(0, on(PORT_DOWN, "j1", "n1")), (0, on(FINDING, "j1", "n1", "cpu_usage"))],
        {"page": 1, "ticket": 0},
    ),
    "another_fault_of_a_node_that_shares_a_cause_pages": (
        [
            *((0, alert) for alert in shared("nic", "nic", EIGHT, "leaf", "l1")),
            *((0, on(PORT_DOWN, "j1", node)) for node in EIGHT),
            (0, on(XID, "j1", "n3")),
            # Nor does it explain the same fault on a node that is no part of it.
            (0, on(PORT_DOWN, "j1", "n9")),
        ],
        {"page": 3, "ticket": 0},
    ),
    "two_leaves_are_two_causes": (
        [
            *((0, alert) for alert in shared("nic", "nic", EIGHT[:4], "leaf", "l1")),
            *((0, alert) for alert in shared("nic", "nic", EIGHT[4:], "leaf", "l2")),
            *((0, on(PORT_DOWN, "j1", node)) for node in EIGHT),
        ],
        {"page": 2, "ticket": 0},
    ),
    "a_place_that_fails_in_two_ways": (
        [
            *((0, alert) for alert in shared("nic", "nic", EIGHT, "leaf", "l1")),
            *((0, alert) for alert in shared("absent", "node", EIGHT[:4], "leaf", "l1")),
            *((0, on(PORT_DOWN, "j1", node)) for node in EIGHT),
            *((0, on(ABSENT, "j1", node)) for node in EIGHT[:4]),
        ],
        {"page": 1, "ticket": 0},
    ),
    "a_rack_without_a_job_vanishes": (
        [
            (0, in_place(SHARED | {"severity": "warning"}, "absent", "rack", "r1")),
            *((0, alert) for alert in shared("absent", "node", EIGHT, "rack", "r1")[1:]),
            *((0, on(EXPORTER_DOWN, "", node)) for node in EIGHT),
        ],
        {"page": 0, "ticket": 1},
    ),
    "one_fault_in_three_metrics_with_symptoms": (
        [
            *((0, on(FINDING, "j1", "n7", f"metric{i}")) for i in range(3)),
            *((0, on(SYMPTOM, "j1", metric=f"metric{i}")) for i in range(8)),
            (0, on(STALLED, "j1")),
        ],
        {"page": 1, "ticket": 0},
    ),
    "the_cause_comes_a_minute_after_its_symptoms": (
        [
            (0, on(STALLED, "j1")),
            (0, on(SYMPTOM, "j1", metric="cpu_usage")),
            (60, on(FINDING, "j1", "n7", "cpu_usage")),
        ],
        {"page": 1, "ticket": 0},
    ),
    "another_metric_joins_the_finding": (
        [(0, on(FINDING, "j1", "n7", "cpu_usage")), (60, on(FINDING, "j1", "n7", "gpu_power"))],
        {"page": 1, "ticket": 0},
    ),
    "two_faulty_nodes_in_one_job": (
        [(0, on(FINDING, "j1", node, "cpu_usage")) for node in ("n7", "n8")],
        {"page": 2, "ticket": 0},
    ),
    "a_faulty_node_in_each_of_two_jobs": (
        [(0, on(FINDING, "j1", "n7", "cpu_usage")), (0, on(FINDING, "j2", "n9", "cpu_usage"))],
        {"page": 2, "ticket": 0},
    ),
    "one_node_shared_by_two_jobs": (
        [
            *((0, on(FINDING, job_id, "n7", "cpu_usage")) for job_id in ("j1", "j2")),
            *((0, on(STALLED, job_id)) for job_id in ("j1", "j2")),
        ],
        {"page": 1, "ticket": 0},
    ),
    "a_job_with_an_xid_is_queued_again_on_the_same_node": (
        [
            (0, on(XID, "j1", "n7")),
            (60, on(XID, "j2", "n7")),
            (60, on(FINDING, "j2", "n7", "cpu_usage")),
        ],
        {"page": 1, "ticket": 0},
    ),
    "a_node_dies_with_two_jobs_and_nobody_is_left": (
        [
            *((0, on(ABSENT, job_id, "n7")) for job_id in ("j1", "j2")),
            (0, on(SYMPTOM, "j1")),
            (60, on(STOPPED, "j2")),
        ],
        {"page": 1, "ticket": 0},
    ),
    "a_flagged_node_that_vanishes_is_not_paged_again": (
        [(0, on(FINDING, "j1", "n7", "absent")), (60, on(ABSENT, "j1", "n7"))],
        {"page": 1, "ticket": 0},
    ),
    "a_suspect_node_of_two_jobs_is_one_ticket": (
        [(0, on(SUSPECT, job_id, "n7", "cpu_usage")) for job_id in ("j1", "j2")],
        {"page": 0, "ticket": 1},
    ),
    "only_a_suspect": (
        [(0, on(SUSPECT, "j1", "n7", "cpu_usage")), (0, on(SYMPTOM, "j1", metric="cpu_usage"))],
        {"page": 0, "ticket": 1},
    ),
    "finding_and_suspicion_about_the_same_node": (
        [(0, on(SUSPECT, "j1", "n7", "cpu_usage")), (0, on(FINDING, "j1", "n7", "gpu_power"))],
        {"page": 1, "ticket": 0},
    ),
    "finding_and_suspicion_about_different_nodes": (
        [(0, on(SUSPECT, "j1", "n8", "cpu_usage")), (0, on(FINDING, "j1", "n7", "gpu_power"))],
        {"page": 1, "ticket": 1},
    ),
    "a_suspect_does_not_silence_a_critical_symptom": (
        [(0, on(SUSPECT, "j1", "n7", "cpu_usage")), (0, on(STALLED, "j1"))],
        {"page": 1, "ticket": 1},
    ),
    "a_finding_does_not_silence_another_job": (
        [(0, on(FINDING, "j1", "n7", "cpu_usage")), (0, on(STALLED, "j2")), (0, on(SYMPTOM, "j2"))],
        {"page": 2, "ticket": 1},
    ),
    "alerts_without_a_job_do_not_silence_one_another": (
        [(0, on(FINDING, "", "n7", "cpu_usage")), (0, on(STALLED, "")), (0, on(SYMPTOM, ""))],
        {"page": 2, "ticket": 1},
    ),
    "an_xid_pages_and_explains_the_finding_that_follows": (
        [
            (0, on(XID, "j1", "n7")),
            (0, on(THROTTLED, "j1", "n8")),
            (30, on(FINDING, "j1", "n7", "cpu_usage")),
            (60, on(MISSING, "j1", "n7")),
            (60, on(STOPPED, "j1")),
        ],
        {"page": 1, "ticket": 0},
    ),
    "an_xid_does_not_explain_the_finding_on_another_node": (
        [(0, on(XID, "j1", "n7")), (0, on(FINDING, "j1", "n8", "cpu_usage"))],
        {"page": 2, "ticket": 0},
    ),
    "a_device_of_a_node_without_a_job_is_a_ticket": (
        [(0, on(IDLE_XID, "", "n7")), (0, on(IDLE_MISSING, "", "n7"))],
        {"page": 0, "ticket": 1},
    ),
    "a_paged_node_whose_job_has_gone_makes_no_ticket": (
        [(0, on(XID, "j1", "n7")), (60, on(IDLE_XID, "", "n7")), (60, on(IDLE_MISSING, "", "n7"))],
        {"page": 1, "ticket": 0},
    ),
    "a_job_without_a_named_node_pages_once": (
        [(0, on(STOPPED, "j1")), (30, on(STALLED, "j1")), (0, on(THROTTLED, "j1", "n8"))],
        {"page": 1, "ticket": 1},
    ),
    "no_exporter_at_all_is_one_page": (
        [(0, NO_EXPORTERS), (0, on(STALE_EXPORTER, "", "n7"))],
        {"page": 1, "ticket": 0},
    ),
    "a_blind_detector_is_stale_too": (
        [(0, BLIND), (0, on(STALE, "j1")), (0, on(STALE, "j2"))],
        {"page": 1, "ticket": 0},
    ),
}

live = [
    pytest.mark.e2e,
    # One Alertmanager plays all cases at once; keep them in one worker.
    pytest.mark.xdist_group("alertmanager"),
]


def eventually(condition, seconds=300):
    """Wait for what a busy machine may bring late."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)


def sent(server: Alertmanager, **labels: str) -> dict[str, int]:
    """Return how many notifications about these labels came, by way."""
    return {way: server.count(f"/{way}", **labels) for way in ("page", "ticket", "heartbeat")}


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> dict[str, dict[str, int]]:
    """Play all cases at once, each in a cluster of its own, until every group_wait is over.

    Notifications by cluster and way; those of the watchdog by an empty name. What changed is told
    again after group_interval, so they are counted before.
    """
    folder = tmp_path_factory.mktemp("alertmanager")
    with alertmanager(config(), folder, SPEED) as server:
        events = sorted(
            (
                (second / SPEED, labels | {"cluster": name})
                for name, (happens, _) in CASES.items()
                for second, labels in happens
            ),
            key=lambda event: event[0],
        )
        events.append((0.0, WATCHDOG))
        start = time.monotonic()
        for moment in sorted({moment for moment, _ in events}):
            time.sleep(max(0.0, start + moment - time.monotonic()))
            server.post(*(labels for when, labels in events if when == moment))
        # The longest group_wait is 2 m.
        time.sleep(max(0.0, start + 120 / SPEED + 2.0 - time.monotonic()))

        def found():
            watchdog = sent(server, alertname=WATCHDOG["alertname"])
            return {name: sent(server, cluster=name) for name in CASES} | {"": watchdog}

        def all_came():
            here = found()
            return here[""]["heartbeat"] >= 2 and all(
                here[name][way] >= count
                for name, (_, expected) in CASES.items()
                for way, count in expected.items()
            )

        eventually(all_came, 600 / SPEED / 2)
        return found()


def with_marks(*values: object, name: str) -> Any:
    return pytest.param(*values, id=name, marks=live)


@pytest.mark.parametrize(
    ("name", "expected"),
    [with_marks(name, expected, name=name) for name, (_, expected) in CASES.items()],
)
def test_notifications(played, name, expected):
    assert expected | {"heartbeat": 0} == played[name]


@pytest.mark.parametrize("heartbeats", [with_marks(2, name="twice")])
def test_the_watchdog_keeps_coming_to_the_heartbeat_receiver_only(played, heartbeats):
    counted = dict(played[""])

    assert counted.pop("heartbeat") >= heartbeats
    assert counted == {"page": 0, "ticket": 0}


@pytest.mark.e2e
def test_a_finding_that_flaps_pages_once_and_its_end_is_told_once(tmp_path):
    flapping = on(FINDING, "j1", "n7", "cpu_usage") | {"cluster": "flaps"}
    ending = on(FINDING, "j1", "n8", "cpu_usage") | {"cluster": "ends"}
    with alertmanager(config(), tmp_path, FASTER) as server:
        server.post(flapping, ending)
        eventually(
            lambda: all(server.count("/page", cluster=cluster) for cluster in ("flaps", "ends"))
        )
        server.post(flapping, ending, resolved=True)
        time.sleep(60 / FASTER)
        server.post(flapping)
        # group_interval has passed once, and then for the other group too.
        eventually(lambda: server.count("/page", status="resolved", cluster="ends"))
        time.sleep(60 / FASTER)

        assert server.count("/page", cluster="flaps") == 1
        assert server.count("/page", status="resolved", cluster="flaps") == 0
        assert server.count("/page", cluster="ends") == 1
        assert server.count("/page", status="resolved", cluster="ends") == 1
