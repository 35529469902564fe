"""What jobs fail of: asked only while something stands against them, and kept with the job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from detector.diagnosis.fake_diagnosers import VERDICT, FakeInstants, Told
from detector.fakes import FakeClock
from detector.world import ONSET, World, world
from peerwatch_common.metrics.exposition import Renderer
from peerwatch_detector.detection.explanation.explain import Activity, JobProgress
from peerwatch_detector.diagnosis.root.live.queries import HAS_EVIDENCE, QUERIES
from peerwatch_detector.diagnosis.root.live.root import LiveRoot
from peerwatch_detector.errors import ReadError, ReadFailure
from peerwatch_detector.frame import Series
from peerwatch_detector.models.store import EMPTY
from peerwatch_detector.reading import promql
from peerwatch_detector.reading.instant_reader import Answers
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.service.job_memory import ROOT_SECONDS
from peerwatch_detector.service.metrics import families
from peerwatch_detector.service.roots import JobRoots
from peerwatch_detector.service.schedule import Backlog
from peerwatch_detector.service.workers import attempt

# By query, labels and how many seconds ago it was; of ranks a value of no meaning.
XID = {
    "ranks": [({"node": f"node-0{n}", "rank": str(n)}, 0.0) for n in range(4)],
    "xid": [({"node": "node-01", "gpu": "3", "xid": "79"}, 104.0)],
    "log": [
        ({"node": f"node-0{n}", "rank": str(n), "class": "D", "signature": "nccl_peer"}, 100.0)
        for n in (0, 2, 3)
    ],
    "step": [({}, 106.0)],
}


@dataclass
class Nodes:
    """A Prometheus that answers the queries about nodes of a job by what they say."""

    clock: FakeClock
    says: dict[str, list[tuple[dict[str, str], float]]] = field(default_factory=dict)
    failures: dict[str, ReadFailure] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    errors: dict[ReadFailure, int] = field(default_factory=dict)

    def read(self, queries: Mapping[str, str]) -> Answers:
        return {name: self._answer(query) for name, query in queries.items()}

    def _answer(self, query: str) -> list[Series] | ReadError:
        names = {promql.job_query(text, "job-1"): name for name, text in QUERIES.items()}
        name = names.get(query, "sign")
        assert name != "sign" or query == promql.job_query(HAS_EVIDENCE, "job-1")
        self.asked.append(name)
        if failure := self.failures.get(name):
            self.errors[failure] = self.errors.get(failure, 0) + 1
            raise ReadError(failure, "The fake does not answer.")
        now = self.clock.now
        return [
            Series(labels, np.array([now]), np.array([now - ago]))
            for labels, ago in self.says.get(name, ())
        ]

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def nothing_is_said() -> Iterator[None]:
    Told.said.clear()
    yield
    Told.said.clear()


def asked_world(*, faulty: int | None = None) -> tuple[World, Nodes]:
    here = world(faulty=faulty)
    nodes = Nodes(here.clock)
    here.detector = Detector(
        here.config,
        here.reader,
        EMPTY,
        here.clock,
        instants=FakeInstants(here.clock),
        diagnosers=(Told,),
        roots=JobRoots(nodes, here.clock),
    )
    return here, nodes


def published(here: World, name: str) -> list[str]:
    text = Renderer(1000, lambda: None).render(families(here.detector.snapshot), openmetrics=False)
    return [line for line in text.decode().splitlines() if line.startswith(name + "{")]


def root_of_job(here: World) -> LiveRoot | None:
    diagnoses = here.detector.snapshot.diagnoses
    assert diagnoses is not None
    return diagnoses.roots.get("job-1")


def test_a_healthy_job_costs_one_query() -> None:
    here, nodes = asked_world()
    here.run(60)

    assert ["sign"] * 4 == nodes.asked
    assert root_of_job(here) is None


@pytest.mark.parametrize(("seconds", "asked"), [(None, False), (45.0, False), (75.0, True)])
def test_a_job_that_waits_is_asked_about_before_its_usual_step_rate_is_known(
    seconds: float | None, asked: bool
) -> None:
    here, _ = asked_world()
    here.run(30)
    memory = here.detector.memories["job-1"]
    assert memory.detection is not None
    assert not memory.suffers
    activity: Activity = "trains" if seconds is None else "waits"
    progress = JobProgress(activity, None, seconds)
    memory.detection = replace(memory.detection, progress=progress)
    assert asked == memory.suffers


def test_a_job_against_which_something_stands_has_a_root_with_its_evidence() -> None:
    here, nodes = asked_world()
    nodes.says = XID
    Told.said["job-1"] = [replace(VERDICT, confidence="likely")]
    here.run(30)

    found = root_of_job(here)
    assert found is not None
    assert [("node-01",)] == [cause.nodes for cause in found.root.causes]
    # The verdict is known before Prometheus has it.
    assert {"xid", "log", "step", "process"} == {each.kind for each in found.evidence}
    assert here.clock.now == found.time
    assert not {"verdict", "named", "finding", "finding_text"} & set(nodes.asked)
    assert "sign" not in nodes.asked[1:]

    Told.said.clear()
    here.run(60)
    assert root_of_job(here) is None


@pytest.mark.parametrize("failure", [None, "unreachable"])
def test_a_new_finding_is_published_with_what_the_job_failed_of(
    failure: ReadFailure | None,
) -> None:
    here, nodes = asked_world()
    here.run(30)
    nodes.says = XID
    nodes.failures = {} if failure is None else dict.fromkeys(QUERIES, failure)
    Told.said["job-1"] = [VERDICT]
    detector, roots = here.detector, here.detector.roots
    assert roots is not None
    memory = detector.memories["job-1"]

    detector.diagnose("job-1", attempt(detector.asking("job-1")))
    detector.publish(Backlog())
    assert memory.wants_root
    assert [] == here.findings()

    # A server that says nothing keeps no finding back either.
    roots.take(memory, attempt(roots.asking(memory)), detector.failures)
    detector.publish(Backlog())
    assert not memory.wants_root
    assert ["rank_exited"] == [finding[3] for finding in here.findings()]
    sentences = "".join(published(here, "peerwatch_diagnosis_info"))
    assert ("Isolate node-01 and restart" in sentences) == (failure is None)


def test_a_new_finding_does_not_wait_for_long() -> None:
    here, _ = asked_world()
    here.run(30)
    Told.said["job-1"] = [VERDICT]
    here.detector.diagnose("job-1", attempt(here.detector.asking("job-1")))

    here.clock.now += ROOT_SECONDS - 1
    here.detector.publish(Backlog())
    assert [] == here.findings()
    here.clock.now += 1
    here.detector.publish(Backlog())
    assert ["rank_exited"] == [finding[3] for finding in here.findings()]


def test_a_sign_of_a_job_that_stands_is_enough_to_ask() -> None:
    here, nodes = asked_world()
    nodes.says = XID | {"sign": [({}, 100.0)]}
    here.run(15)

    found = root_of_job(here)
    assert found is not None
    assert 4 == len(found.places.nodes)


def test_a_query_that_is_not_answered_costs_only_itself() -> None:
    here, nodes = asked_world()
    nodes.says = XID | {"sign": [({}, 100.0)]}
    nodes.failures = {"link_down": "timeout", "boot": "refused"}
    here.run(15)

    found = root_of_job(here)
    assert found is not None
    assert [("node-01",)] == [cause.nodes for cause in found.root.causes]
    assert any("link_down, boot" in text for text in found.root.missing)
    assert [
        'peerwatch_diagnosis_unanswered{job_id="job-1",query="link_down"} 1',
        'peerwatch_diagnosis_unanswered{job_id="job-1",query="boot"} 1',
    ] == published(here, "peerwatch_diagnosis_unanswered")
    assert 'peerwatch_diagnosis_errors_total{reason="timeout"} 1' in published(
        here, "peerwatch_diagnosis_errors_total"
    )


def test_a_server_that_is_gone_leaves_what_was_found() -> None:
    here, nodes = asked_world()
    nodes.says = XID | {"sign": [({}, 100.0)]}
    here.run(15)
    nodes.failures = {"sign": "unreachable", "ranks": "unreachable"}
    here.run(15)

    assert root_of_job(here) is not None
    assert "unreachable" == here.detector.failures.reasons["job", "job-1", "root"]


def test_the_root_is_published_first_and_makes_a_finding_where_nothing_else_does() -> None:
    here, nodes = asked_world()
    nodes.says = XID | {"sign": [({}, 100.0)]}
    here.run(30)

    assert [
        'peerwatch_diagnosis{action="isolate",class="gpu_unavailable",confidence="sure",'
        'domain="hardware",job_id="job-1",node="node-01",rank=""} 1'
    ] == published(here, "peerwatch_diagnosis")
    (info,) = published(here, "peerwatch_diagnosis_info")
    assert 'root="1"' in info
    assert (
        "Isolate node-01 and restart: GPU 3 fell off the bus (XID 79), 4 s before 3 ranks" in info
    )
    ((_, node, _, metric, method, severity, _),) = here.findings()
    assert ("node-01", "gpu_unavailable", "evidence", "critical") == (
        node,
        metric,
        method,
        severity,
    )
    (detection,) = here.detector.snapshot.detections
    (why,) = detection.explanations.values()
    assert why.sentence.startswith("GPU 3 fell off the bus (XID 79), 4 s before")

    # The finding is the root's own: it does not keep itself alive.
    nodes.says = {}
    here.run(60)
    assert [] == here.findings()
    assert [] == published(here, "peerwatch_diagnosis")


def test_the_root_takes_no_findings_place_and_leads_the_verdicts() -> None:
    here, nodes = asked_world()
    nodes.says = XID
    Told.said["job-1"] = [
        VERDICT,
        replace(VERDICT, node="node-02", class_name="not_launched", action="isolate"),
    ]
    here.run(45)

    assert {("node-01", "rank_exited"), ("node-02", "not_launched")} == {
        (finding[1], finding[3]) for finding in here.findings()
    }
    lines = published(here, "peerwatch_diagnosis")
    shown = [line.partition("{")[2] for line in lines]
    assert ["gpu_unavailable", "rank_exited", "not_launched"] == [
        line.partition('class="')[2].partition('"')[0] for line in shown
    ]
    assert ["isolate", "isolate", "inspect"] == [
        line.partition('action="')[2].partition('"')[0] for line in shown
    ]


def test_a_node_that_statistics_name_has_one_finding_and_the_root_beside_it() -> None:
    here, nodes = asked_world(faulty=1)
    here.run(ONSET + 400)
    ((_, node, _, metric, *_),) = here.findings()
    assert ("node-01", "load") == (node, metric)
    nodes.says = XID
    here.run(30)

    assert ["load"] == [finding[3] for finding in here.findings()]
    assert 1 == len(published(here, "peerwatch_diagnosis"))
