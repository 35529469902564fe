"""The query for evidence on a real Prometheus: what it finds, and 1,000 ends in time."""

from __future__ import annotations

import time

import pytest

from peerwatch_reliability.records import Evidence
from peerwatch_reliability.sources.prometheus.evidence import minute_of, observed
from peerwatch_reliability.sources.prometheus.first_steps import FirstStepReader, start_of
from prometheus_history import prometheus_with

# One Prometheus for all.
pytestmark = pytest.mark.xdist_group("evidence_live")

HOURS, NODES, ENDS = 18, 100, 1000
# Whole minutes; the ends lie within the samples, with their windows.
T0 = 1_700_000_040
STEP = 60


def openmetrics():
    """Yield samples of a fleet in which n7 fails a check, n8 has an XID and a test accuses n9."""
    times = [T0 + STEP * number for number in range(HOURS * 3600 // STEP)]

    def samples(name, labels, values):
        return (f"{name}{{{labels}}} {value} {time}" for time, value in values)

    half = len(times) // 2
    fails = [(each, 2 if number == half else 0) for number, each in enumerate(times)]
    constant = [(each, 1) for each in times]
    yield "# TYPE exporter_build_info gauge"
    for node in range(NODES):
        yield from samples("exporter_build_info", f'node="n{node}"', constant)
    yield "# TYPE gpu_xid_class_last_timestamp_seconds gauge"
    labels = 'node="n8",gpu="3",xid="79",class="hardware"'
    yield from samples(
        "gpu_xid_class_last_timestamp_seconds", labels, [(t, T0 + 3600) for t in times[61:]]
    )
    yield "# TYPE peerwatch_check_status gauge"
    for node in range(NODES):
        for check in ("disk", "services", "mounts", "pcie_link"):
            labels = f'node="n{node}",check="{check}",scope="host",device="",severity="high"'
            is_it = node == 7 and check == "pcie_link"
            yield from samples(
                "peerwatch_check_status", labels, fails if is_it else [(t, 0) for t in times]
            )
    labels = 'node="n1",check="pair_bandwidth",scope="pair",device="n9",severity="high"'
    yield from samples("peerwatch_check_status", labels, fails)
    yield "# TYPE peerwatch_finding gauge"
    labels = 'job_id="5",node="n6",gpu="",metric="rdma",method="peerwatch",severity="critical"'
    yield from samples("peerwatch_finding", labels, constant[half : half + 10])
    yield "# TYPE rank_checkpoint_last_timestamp_seconds gauge"
    labels = 'node="n6",job_id="5",rank="0"'
    yield from samples(
        "rank_checkpoint_last_timestamp_seconds", labels, [(t, T0 + 600) for t in times]
    )
    yield "# TYPE rank_last_step_timestamp_seconds gauge"
    # An attempt that has begun at 2 h makes its first step 90 s later; the one before ended at 1 h.
    labels = 'node="n6",job_id="ml/x.y",rank="0"'
    steps = [(t, t - 5 if t >= T0 + 7290 else T0 + 3600) for t in times]
    yield from samples("rank_last_step_timestamp_seconds", labels, steps)
    yield "# EOF"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Yield a Prometheus with that history."""
    with prometheus_with(tmp_path_factory.mktemp("prometheus"), openmetrics()) as asked:
        yield asked


def test_what_stood_around_an_end(server):
    end = T0 + HOURS * 1800 + 120
    first, last = minute_of(end) * 60 - 660, minute_of(end) * 60 + 300
    found = observed(server, [end])
    assert found.missing == ()
    seen = found.by_minute[minute_of(end)]
    assert {each for each in seen if each.kind != "xid"} == {
        Evidence("check", "n7", "pcie_link", "high", first, last),
        # The node that the test accuses, not the one that says so.
        Evidence("check", "n9", "pair_bandwidth", "high", first, last),
        Evidence("finding", "n6", "rdma", "high", first, last, "5"),
    }
    # Of long ago; by its own time it explains no end of today.
    assert [each for each in seen if each.kind == "xid"] == [
        Evidence("xid", "n8", "79", "high", T0 + 3600, T0 + 3600)
    ]
    assert found.checkpoints == {(minute_of(end), "5"): T0 + 600}


def test_the_first_step_of_an_attempt(server):
    """The first that was scraped."""
    reader = FirstStepReader(server)
    found = reader.read([("ml/x.y", T0 + 7200.0), ("other", T0 + 7200.0)], T0 + 5 * 3600.0)
    assert found.missing == ()
    assert found.by_start == {start_of("ml/x.y", T0 + 7200.0): T0 + 7320 - 5}


def test_a_thousand_ends(server, record_property):
    """Each end is in a minute of its own, so that there are as many queries."""
    span = HOURS * 3600 - 1200
    ends = [T0 + 660 + span * number / ENDS for number in range(ENDS)]
    began = time.monotonic()
    found = observed(server, ends)
    record_property("seconds", time.monotonic() - began)
    print(f"{ENDS} ends: {time.monotonic() - began:.1f} s")
    assert found.missing == ()
    assert set(found.by_minute) == {minute_of(each) for each in ends}
    named = {e.node for seen in found.by_minute.values() for e in seen if e.kind == "check"}
    assert named == {"n7", "n9"}
