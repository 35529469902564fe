"""Attempts from the runs of pods, and runs of pods from what is known of each."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerwatch_common.errors import ConfigError
from peerwatch_common.settings.load import validated
from peerwatch_reliability.accounting.attempts import chains_of
from peerwatch_reliability.records import OutOfService, Window
from peerwatch_reliability.settings.config import KubernetesConfig, ReliabilityConfig
from peerwatch_reliability.sources.kubernetes.facts import (
    Facts,
    JobFacts,
    NodeState,
    PodFacts,
    add_facts,
)
from peerwatch_reliability.sources.kubernetes.job_rows import Work, rows_of
from peerwatch_reliability.sources.kubernetes.outages import LostNodes, outages_of
from peerwatch_reliability.sources.kubernetes.pod_runs import PodRun, runs_of
from peerwatch_reliability.sources.kubernetes.source import job_rows
from peerwatch_reliability.sources.prometheus.server import Series

WORK = Work("ml/train", "ml", "train", "PyTorchJob", None, False)
NOW = 100_000.0
LOST = LostNodes([OutOfService("n1", 5000.0, 9000.0, "not ready")])


def run(pod, created, start, end=None, how="open"):
    return PodRun(pod, f"n{pod}", 8, created, start, end, how)


def rows(runs, work=WORK):
    return [
        (each.state, each.submit, each.start, each.end, each.continues)
        for each in rows_of(work, sorted(runs, key=lambda run: run.created))
    ]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param(
            [run("a", 0, 10, 900, "completed"), run("b", 0, 40, 950, "completed")],
            [("completed", 0, 40, 950, False)],
            id="it runs once all do, until the last has ended",
        ),
        pytest.param(
            [run("a", 0, 10), run("b", 0, None)],
            [("running", 0, 10, None, False)],
            id="one of them still waits",
        ),
        pytest.param([run("a", 5, None)], [("running", 5, None, None, False)], id="it waits"),
        pytest.param(
            [
                *(run(pod, 0, 10, 2000 + n, "failed") for n, pod in enumerate("abc")),
                *(run(pod, 2010, 2100) for pod in "abc"),
            ],
            [("failed", 0, 10, 2000, False), ("running", 2000, 2100, None, True)],
            id="all begin again after the first has failed",
        ),
        pytest.param(
            # While the others wait for a time-out, the new one is alone: that is no attempt.
            [
                run("a", 0, 10, 2000, "failed"),
                *(run(pod, 0, 10, 3800, "failed") for pod in "bcd"),
                run("a", 2020, 2050, 3700, "failed"),
                run("a", 3710, 3720),
                *(run(pod, 3810, 3820) for pod in "bcd"),
            ],
            [("failed", 0, 10, 2000, False), ("running", 2000, 3820, None, True)],
            id="the others time out",
        ),
        pytest.param(
            # The lost node is noticed after its peers.
            [run("a", 0, 10, 2000, "failed"), run("b", 0, 10, 2045, "node_fail")],
            [("node_fail", 0, 10, 2000, False)],
            id="a node is lost",
        ),
        pytest.param(
            [run("a", 0, 10, 500, "gone"), run("b", 0, 10, 500, "gone")],
            [("cancelled", 0, 10, 500, False)],
            id="its owner deletes it",
        ),
        pytest.param(
            [run("a", 0, 10, 500, "gone"), run("a", 520, 900, 1000, "completed")],
            [("requeued", 0, 10, 500, False), ("completed", 500, 900, 1000, True)],
            id="its controller makes it anew",
        ),
        pytest.param(
            [run("a", 0, 10, 500, "gone"), run("a", 5000, 5010)],
            [("cancelled", 0, 10, 500, False), ("running", 5000, 5010, None, False)],
            id="its owner makes it anew much later",
        ),
        pytest.param(
            [run("master", 0, 10, 900, "completed"), run("worker", 0, 10, 960, "gone")],
            [("completed", 0, 10, 960, False)],
            id="workers are not needed once the master has succeeded",
        ),
        pytest.param(
            [run("a", 0, 10), run("b", 0, 10), run("c", 9000, 9100)],
            [("running", 0, 10, None, False)],
            id="one joins a running job",
        ),
        pytest.param(
            [run("a", 0, 10), run("b", 0, 10), run("c", 0, 10, 800, "failed")],
            [("failed", 0, 10, 800, False), ("running", 800, 800, None, True)],
            id="it goes on with fewer",
        ),
    ],
)
def test_attempts_of_pods(runs, expected):
    assert rows(runs) == expected


def test_a_deadline_is_no_failure():
    work = WORK._replace(is_timeout=True)
    assert rows([run("a", 0, 10, 500, "gone")], work)[0][0] == "timeout"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcd"),
            st.floats(0, 5000),
            st.floats(0, 500),
            st.floats(0, 5000),
            st.sampled_from(("completed", "failed", "node_fail", "gone", "preempted")),
        ),
        max_size=12,
    )
)
def test_times_sum_to_the_wall(lives):
    runs = [
        run(pod, created, created + wait, created + wait + ran, how)
        for pod, created, wait, ran, how in lives
    ]
    found = rows_of(WORK, sorted(runs, key=lambda run: run.created))
    for before, after in itertools.pairwise(found):
        assert before.end <= after.start
    for chain in chains_of(found, NOW):
        total = sum(each.queue_seconds + each.run_seconds for each in chain.attempts)
        assert total == pytest.approx(chain.wall_seconds, abs=1)
        assert not any(each.notes for each in chain.attempts)


def pod(**facts):
    """Return a pod of n1 that was seen until long ago, unless its facts say otherwise."""
    values = {"node": "n1", "gpus": {"main": 8}, "created": 0.0, "phase": "Running", "seen": 5300.0}
    values |= {"starts": {10.0}, **facts}
    return PodFacts("ml", "train-worker-0", **values)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"seen": NOW}, [(0, 10, None, "open")]),
        ({"phase": "Succeeded", "completion": 700.0}, [(0, 10, 700, "completed")]),
        ({"phase": "Failed", "completion": 700.0}, [(0, 10, 700, "failed")]),
        (
            {"phase": "Failed", "completion": 700.0, "reasons": {"OOMKilled", "Error"}},
            [(0, 10, 700, "out_of_memory")],
        ),
        (
            {"phase": "Failed", "completion": 70.0, "reasons": {"Evicted"}},
            [(0, 10, 70, "requeued")],
        ),
        ({"seen": 700.0, "reasons": {"PreemptionByScheduler"}}, [(0, 10, 700, "preempted")]),
        # Deleted, and its node was there.
        ({"seen": 700.0}, [(0, 10, 700, "gone")]),
        # Deleted minutes after its node was lost.
        ({"deletion": 5330.0}, [(0, 10, 5000, "node_fail")]),
        ({"reasons": {"DeletionByTaintManager"}}, [(0, 10, 5000, "node_fail")]),
        # Of another node the taint was somebody's will.
        ({"node": "n2", "reasons": {"DeletionByTaintManager"}}, [(0, 10, 5300, "requeued")]),
        # It does not leave the API while its node is lost: its own word is not needed.
        (
            {"phase": "Failed", "completion": 5050.0, "reasons": {"Error"}},
            [(0, 10, 5050, "failed")],
        ),
        # In its pod a container begins again, and then waits.
        (
            {"seen": NOW, "starts": {10.0, 100.0}, "ends": {90.0: "Error", 200.0: "OOMKilled"}},
            [(0, 10, 90, "failed"), (90, 100, 200, "out_of_memory"), (200, None, None, "open")],
        ),
        # An older kube-state-metrics does not say when it ended: not before the next begin.
        (
            {"seen": NOW, "starts": {10.0, 100.0}},
            [(0, 10, 100, "failed"), (100, 100, None, "open")],
        ),
        # Its node begins anew with it.
        (
            {"seen": NOW, "starts": {10.0, 9050.0}, "ends": {9000.0: "Unknown"}},
            [(0, 10, 5000, "node_fail"), (5000, 9050, None, "open")],
        ),
        ({"seen": NOW, "starts": set(), "phase": "Pending"}, [(0, None, None, "open")]),
        # Only the pod's own start is known.
        ({"seen": NOW, "starts": set(), "start": 20.0}, [(0, 20, None, "open")]),
    ],
)
def test_runs_of_a_pod(facts, expected):
    found = runs_of(pod(**facts), LOST, NOW)
    assert [(each.created, each.start, each.end, each.how) for each in found] == expected


def test_outages():
    minutes = [NodeState("n1", "not_ready", 60.0 * n) for n in (1, 2, 3, 20, 21)]
    minutes += [NodeState("n2", "cordoned", NOW - 60.0 * n) for n in range(5)]
    assert outages_of(minutes, NOW) == [
        OutOfService("n1", 60, 240, "not ready"),
        OutOfService("n1", 1200, 1320, "not ready"),
        OutOfService("n2", NOW - 240, None, "cordoned"),
    ]


def test_what_tells_jobs_apart():
    """A Job of the same name is another once it is made anew, unless something above made it."""
    facts = Facts(jobs={
        ("ml", "a"): JobFacts({0.0, 5000.0}),
        ("ml", "set-0"): JobFacts({0.0, 5000.0}, ("JobSet", "set")),
        ("ml", "nightly-1"): JobFacts({0.0}, ("CronJob", "nightly")),
        ("ml", "nightly-2"): JobFacts({5000.0}, ("CronJob", "nightly")),
    })  # fmt: skip
    for number, (name, owner, created) in enumerate([
        ("a-x2k9d", ("Job", "a"), 10.0), ("a-b4wmz", ("Job", "a"), 5010.0),
        ("set-0-0-x2k9d", ("Job", "set-0"), 10.0), ("set-0-0-b4wmz", ("Job", "set-0"), 5010.0),
        ("nightly-1-x2k9d", ("Job", "nightly-1"), 10.0),
        ("nightly-2-x2k9d", ("Job", "nightly-2"), 5010.0),
        ("chat-x2k9d", ("ReplicaSet", "chat"), 0.0), ("alone", ("", ""), 0.0),
    ]):  # fmt: skip
        facts.pods[str(number)] = PodFacts(
            "ml", name, {"main": 8}, "n2", owner, created, phase="Failed",
            starts={created + 5}, completion=created + 100, seen=created + 120,
        )  # fmt: skip
    found = job_rows(facts, [], KubernetesConfig(), Window(0, NOW))
    assert sorted((each.job_id, each.order, each.submit, each.continues) for each in found) == [
        ("ml/a", 1, 0, False),
        ("ml/a", 2, 5000, False),
        ("ml/alone", 1, 0, False),
        ("ml/nightly", 1, 0, False),
        ("ml/nightly", 2, 5000, False),
        ("ml/set", 1, 0, False),
        ("ml/set", 2, 5010, False),
    ]
    links = [[each.link for each in chain.attempts] for chain in chains_of(found, NOW)]
    # What failed and was made anew within a day is resubmitted; a schedule's next job is not.
    assert sorted(map(tuple, links)) == [
        ("first",), ("first",), ("first",), ("first", "resubmitted"), ("first", "resubmitted"),
    ]  # fmt: skip


def test_only_containers_with_gpus_say_why():
    labels = {"namespace": "ml", "pod": "a", "uid": "1"}
    answer = [
        Series({**labels, "kind": "terminated", "container": "sidecar", "reason": "OOMKilled"},
               [(0, 1)]),
        Series({**labels, "kind": "gpus", "container": "main"}, [(0, 8)]),
        Series({**labels, "kind": "terminated", "container": "main", "reason": "Error"}, [(0, 1)]),
    ]  # fmt: skip
    facts = Facts()
    add_facts(facts, answer)
    assert (facts.pods["1"].why, facts.pods["1"].gpus) == ({"Error"}, {"main": 8})


def test_the_last_end_of_a_container_says_why():
    labels = {"namespace": "ml", "pod": "a", "uid": "1"}
    days = []
    for seen in ({"OOMKilled": 60, "Error": 120}, {"Error": 60, "OOMKilled": 60}, {"Error": 1}):
        facts = Facts()
        add_facts(facts, [
            Series({**labels, "kind": "gpus", "container": "main"}, [(0, 8)]),
            *(Series({**labels, "kind": "terminated", "container": "main", "reason": reason},
                     [(0, time)]) for reason, time in seen.items()),
        ])  # fmt: skip
        days.append(facts)
    assert [day.pods["1"].why for day in days] == [{"Error"}, {"Error", "OOMKilled"}, {"Error"}]
    # Of a later day even what is too short for a minute is newer.
    days[1].update(days[2])
    assert days[1].pods["1"].why == {"Error"}


def test_it_needs_a_prometheus():
    with pytest.raises(ConfigError, match="needs prometheus"):
        validated(ReliabilityConfig, {"scheduler": "kubernetes"})
