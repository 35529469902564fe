"""kube-state-metrics' series on a real Prometheus, from queries to attempts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kube_state import KubeJob, KubeNode, KubePod, openmetrics
from peerwatch_reliability.accounting.attempts import chains_of
from peerwatch_reliability.errors import SourceError
from peerwatch_reliability.records import Window
from peerwatch_reliability.report.document import document_of
from peerwatch_reliability.report.gather import Gatherer
from peerwatch_reliability.report.text import report_lines
from peerwatch_reliability.settings.config import KubernetesConfig, ReliabilityConfig
from peerwatch_reliability.sources.kubernetes.days import DayReader
from peerwatch_reliability.sources.kubernetes.source import read_kubernetes
from prometheus_history import prometheus_with

# One Prometheus for all.
pytestmark = pytest.mark.xdist_group("kubernetes_live")

HOUR = 3600
# Midnight, so that the history crosses one.
T0 = 19_676 * 86_400 - 8 * HOUR
SPAN = 16 * HOUR
WINDOW = Window(T0, T0 + SPAN)
JOBSET = ("Job", "set-workers-0")


def worker(number, created, runs, node="", **other):
    """Return a pod of the PyTorchJob."""
    return KubePod(
        f"train-worker-{number}", node or f"n{number}", created=created, runs=runs, **other
    )


# One job for each thing that happens; all times are seconds since T0.
OBJECTS = [
    *(KubeNode(f"n{number}") for number in range(8) if number not in {1, 6}),
    # n1 dies at 4 h and comes back an hour later; n6 is drained.
    KubeNode("n1", not_ready=((4 * HOUR + 40, 5 * HOUR),)),
    KubeNode("n6", cordoned=((9 * HOUR, 10 * HOUR),)),
    # Four workers; n1 is lost, the others end by a time-out 10 minutes later and begin again in
    # their pods; the lost one is made anew on n7. Then all succeed.
    *(
        worker(n, 60, ((120, 4 * HOUR + 600, "Error"), (4 * HOUR + 630, 12 * HOUR, "Completed")),
               phase="Succeeded", gone=13 * HOUR)
        for n in (0, 2, 3)
    ),
    worker(1, 60, ((120, None, ""),), deletion=4 * HOUR + 370, gone=4 * HOUR + 400,
           disruption="DeletionByTaintManager"),
    worker(1, 4 * HOUR + 410, ((4 * HOUR + 900, 12 * HOUR, "Completed"),), node="n7",
           phase="Succeeded", gone=13 * HOUR),
    # A JobSet that its owner deletes after a preemption.
    KubeJob("set-workers-0", created=0, gone=6 * HOUR, owner=("JobSet", "set")),
    KubeJob("set-workers-0", created=6 * HOUR + 10, gone=8 * HOUR, owner=("JobSet", "set")),
    KubePod("set-workers-0-0-b4wmz", "n4", JOBSET, created=600, bound=1200,
            runs=((1260, None, ""),), deletion=6 * HOUR, gone=6 * HOUR,
            disruption="PreemptionByScheduler"),
    KubePod("set-workers-0-0-x2k9d", "n4", JOBSET, created=6 * HOUR + 30, bound=7 * HOUR,
            runs=((7 * HOUR + 60, None, ""),), gone=8 * HOUR),
    # A Job of one pod that is out of memory twice, in its pod, and then goes on.
    KubeJob("single", created=0),
    KubePod("single-q7d5f", "n5", ("Job", "single"), created=30,
            runs=((60, 1800, "OOMKilled"), (1900, 3600, "OOMKilled"), (3700, None, ""))),
    # One that is out of memory once, begins again in its pod, and fails for another reason.
    KubeJob("again", created=0),
    KubePod("again-q7d5f", "n5", ("Job", "again"), created=30,
            runs=((60, 1800, "OOMKilled"), (1900, 3600, "Error")), phase="Failed", gone=5 * HOUR),
    # A service and a pod without a GPU are no jobs.
    KubePod("chat-6d4b9c7f5d-x2k9d", "n5", ("ReplicaSet", "chat"), runs=((60, None, ""),)),
    KubePod("web-x2k9d", "n5", ("Job", "web"), runs=((60, None, ""),), gpus=0),
    # One that waits for a place.
    KubePod("late-worker-0", "", ("PyTorchJob", "late"), created=15 * HOUR, bound=99 * HOUR),
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Yield a Prometheus that has scraped this cluster."""
    lines = openmetrics(OBJECTS, T0, SPAN)
    with prometheus_with(tmp_path_factory.mktemp("prometheus"), lines) as asked:
        yield asked


@pytest.fixture(scope="module")
def jobs(server):
    """Return what is read of it."""
    config = KubernetesConfig()
    return read_kubernetes(DayReader(server, config), config, WINDOW, WINDOW)


def attempts(jobs, job_id):
    """Return link, state, Q and the run of the attempts of a job, in seconds."""
    found = [
        (each.link, each.row.state, each.queue_seconds, each.run_seconds, each.row.nodes)
        for chain in chains_of(jobs.rows, WINDOW.end)
        for each in chain.attempts
        if each.row.job_id == job_id
    ]
    return [
        (link, state, round(queue), round(run), nodes) for link, state, queue, run, nodes in found
    ]


def test_a_lost_node_ends_the_attempt_of_all(jobs):
    lost = 4 * HOUR + 60
    assert attempts(jobs, "ml/train") == [
        ("first", "node_fail", 60, lost - 120, ("n0", "n1", "n2", "n3")),
        ("requeued", "completed", 900 - 60, 8 * HOUR - 900, ("n0", "n2", "n3", "n7")),
    ]


def test_a_preempted_job_set_waits_and_is_cancelled(jobs):
    assert attempts(jobs, "ml/set") == [
        # A pod that says nothing of its end has ended after its last scrape.
        ("first", "preempted", 1260, pytest.approx(6 * HOUR - 1260, abs=30), ("n4",)),
        ("requeued", "cancelled", pytest.approx(HOUR + 60, abs=30),
         pytest.approx(HOUR - 60, abs=30), ("n4",)),
    ]  # fmt: skip


def test_containers_that_begin_again_in_their_pod(jobs):
    assert attempts(jobs, "ml/single") == [
        ("first", "out_of_memory", 60, 1740, ("n5",)),
        ("requeued", "out_of_memory", 100, 1700, ("n5",)),
        ("requeued", "running", 100, SPAN - 3700, ("n5",)),
    ]


def test_an_earlier_end_does_not_say_why_the_pod_ended(jobs):
    assert attempts(jobs, "ml/again") == [
        ("first", "out_of_memory", 60, 1740, ("n5",)),
        ("requeued", "failed", 100, 1700, ("n5",)),
    ]


def test_what_else_there_is(jobs):
    names = {"train", "set", "single", "again", "late"}
    assert {row.job_id for row in jobs.rows} == {f"ml/{name}" for name in names}
    assert attempts(jobs, "ml/late") == [("first", "running", HOUR, 0, ())]
    assert {row.gpus for row in jobs.rows if row.job_id == "ml/train"} == {32}
    out = [(each.node, each.reason, (each.start - T0) // 60, (each.end - T0) // 60)
           for each in jobs.out]  # fmt: skip
    assert out == [("n1", "not ready", 241, 300), ("n6", "cordoned", 540, 600)]
    for chain in chains_of(jobs.rows, WINDOW.end):
        total = sum(each.queue_seconds + each.run_seconds for each in chain.attempts)
        assert total == pytest.approx(chain.wall_seconds, abs=1)


def test_days_that_are_over_are_read_once(server):
    config = KubernetesConfig()
    asked = []

    def at_all(queries):
        queries = list(queries)
        asked.extend(queries)
        return server.at_all(queries)

    reader = DayReader(SimpleNamespace(at_all=at_all), config)
    first = read_kubernetes(reader, config, WINDOW, WINDOW)
    asked.clear()
    assert read_kubernetes(reader, config, WINDOW, WINDOW).rows == first.rows
    # Three of pods and one of nodes, of today.
    assert len(asked) == 4


def test_the_books_of_a_cluster(server):
    """From settings to the report: one node was lost, and one job held 32 GPUs."""
    config = ReliabilityConfig(
        scheduler="kubernetes", prometheus=server.config, window_days=SPAN / 86_400, nodes=8
    )
    document = document_of(Gatherer(config).books(WINDOW.end))
    assert (document["failures"], document["attempts"]) == (1, 10)
    assert {name: each["count"] for name, each in document["causes"].items()} == {"node_fail": 1}
    (largest, *_) = document["jobs_with_most_gpu_time"]
    assert (largest["job_id"], largest["gpus"], largest["restarts"]) == ("ml/train", 32, 1)
    # What nobody scraped is said, and nothing is made up of it.
    assert any("no data of any exporter" in each for each in document["missing"])
    assert list(report_lines(document))


def test_a_selector_that_finds_nothing(server):
    config = KubernetesConfig(selector='cluster="elsewhere"')
    with pytest.raises(SourceError, match=r"kubernetes\.selector does not match"):
        read_kubernetes(DayReader(server, config), config, WINDOW, WINDOW)
