"""Which notifications the shipped configuration sends, and when: by a real Alertmanager, faster."""

from __future__ import annotations

import time
from typing import Any

import pytest

from alert_labels import (
    ABSENT,
    EXPORTER_DOWN,
    FINDING,
    IDLE_MISSING,
    IDLE_XID,
    JOB_SLOW,
    MISSING,
    NO_EXPORTERS,
    PORT_DOWN,
    READS_FAILING,
    SHARED,
    SLOWS_JOB,
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
    shared,
)
from alertmanager_live import Alertmanager, alertmanager

# The shipped timers run this many times as fast in the live tests. What must come in time comes
# seconds before the timer it must precede, so that a busy machine keeps the order.
SPEED = 8.0
# Fast enough to see group_interval (10 m) pass.
FASTER = 40.0

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
    "a_device_that_slows_its_job_is_one_page": (
        [
            (0, on(THROTTLED, "j1", "n7")),
            (90, on(SLOWS_JOB, "j1", "n7")),
            (90, on(JOB_SLOW, "j1")),
            # What differs from its peers later belongs to the same page.
            (100, on(FINDING, "j1", "n7", "gpu_sm_clock")),
        ],
        {"page": 1, "ticket": 0},
    ),
    "an_xid_explains_that_its_node_slows_the_job": (
        [(0, on(XID, "j1", "n7")), (30, on(SLOWS_JOB, "j1", "n7")), (60, on(JOB_SLOW, "j1"))],
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
    "a_detector_whose_reads_fail_is_stale_too": (
        [(0, READS_FAILING), (0, on(STALE, "j1")), (0, on(STALE, "j2"))],
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
