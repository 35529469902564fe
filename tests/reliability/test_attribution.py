from __future__ import annotations

import pytest

from peerwatch_reliability.accounting.attempts import chains_of
from peerwatch_reliability.accounting.attribution import EvidenceByNode, attribution_of
from peerwatch_reliability.accounting.causes import cause_of
from peerwatch_reliability.records import Evidence
from reliability_rows import T0, row

END = 10_000.0


def seen(kind, name, severity="high", at=END, until=None, node="n1", job_id=""):
    """Return evidence that stood from a time to another, in seconds since T0."""
    return Evidence(
        kind, node, name, severity, T0 + at, T0 + (at if until is None else until), job_id
    )


def why(state, *evidence, nodes=("n1", "n2")):
    attempt = chains_of([row("1", 1, state, 0, 0, END, nodes=nodes)], T0 + 1e6)[0].first
    return attribution_of(attempt, EvidenceByNode(evidence).around(attempt))


XID79 = seen("xid", "79")
PCIE = seen("check", "pcie_link")
TIMEOUT = seen("log", "nccl_timeout", node="n2")
OWN = seen("log", "python_exception", job_id="1")


@pytest.mark.parametrize(
    ("state", "evidence", "origin", "cause", "node"),
    [
        # Without any evidence the scheduler's own word counts, and a failure is nobody's.
        ("node_fail", (), "infrastructure", "node_fail", ""),
        ("failed", (), "unknown", "unknown", ""),
        ("completed", (PCIE,), "none", "unknown", ""),
        ("preempted", (PCIE,), "scheduler", "unknown", ""),
        ("cancelled", (PCIE,), "scheduler", "unknown", ""),
        ("timeout", (), "scheduler", "unknown", ""),
        ("requeued", (), "scheduler", "unknown", ""),
        ("requeued", (XID79,), "infrastructure", "pcie", "n1"),
        ("out_of_memory", (), "user", "user_program", ""),
        # A check outranks an XID, an XID a finding, a finding the scheduler's word.
        ("failed", (XID79, seen("check", "nvlink_errors")), "infrastructure", "nvlink", "n1"),
        ("failed", (seen("finding", "pfc_rx"), XID79), "infrastructure", "pcie", "n1"),
        ("node_fail", (seen("finding", "nic_link"),), "infrastructure", "network_link", "n1"),
        # A check of low severity and an XID of an application say nothing of the root.
        ("failed", (seen("check", "disk_usage", "low"),), "unknown", "unknown", ""),
        ("failed", (seen("xid", "31", "low"),), "unknown", "unknown", ""),
        # An NCCL time-out is only seen of a failure, by its peers.
        ("failed", (TIMEOUT,), "unknown", "unknown", ""),
        ("failed", (TIMEOUT, PCIE), "infrastructure", "pcie", "n1"),
        ("failed", (seen("check", "nccl_timeout"), XID79), "infrastructure", "pcie", "n1"),
        # The log of the program itself.
        ("failed", (OWN,), "user", "user_program", "n1"),
        ("failed", (seen("log", "cuda_out_of_memory", job_id="1"),), "user", "out_of_memory", "n1"),
        ("failed", (OWN, PCIE), "infrastructure", "pcie", "n1"),
        # That of another job on the node is none of this one's.
        ("failed", (seen("log", "python_exception", job_id="2"),), "unknown", "unknown", ""),
        # A node that is lost is no user's fault, whatever a log says.
        ("node_fail", (seen("log", "python_exception"),), "infrastructure", "node_fail", ""),
        # 10 minutes before the end to 5 after.
        ("failed", (seen("xid", "79", at=END - 601),), "unknown", "unknown", ""),
        ("failed", (seen("xid", "79", at=END - 600),), "infrastructure", "pcie", "n1"),
        ("failed", (seen("xid", "79", at=END + 300),), "infrastructure", "pcie", "n1"),
        ("failed", (seen("xid", "79", at=END + 301),), "unknown", "unknown", ""),
        # What began long before and still stands counts.
        ("failed", (seen("check", "pcie_link", at=0, until=END),), "infrastructure", "pcie", "n1"),
        # Another node's fault is none of this job's.
        ("failed", (seen("xid", "79", node="n9"),), "unknown", "unknown", ""),
    ],
)  # fmt: skip
def test_why(state, evidence, origin, cause, node):
    found = why(state, *evidence)
    assert (found.origin, found.cause.name, found.node) == (origin, cause, node)


def test_what_was_only_seen_of_it_is_kept():
    found = why("failed", TIMEOUT, XID79, seen("check", "ecc_errors"))
    assert found.cause.name == "gpu_memory"
    assert found.proximal.name == "nccl_timeout"
    assert found.together == ("pcie",)
    assert why("failed", TIMEOUT).proximal.name == "nccl_timeout"


@pytest.mark.parametrize(
    ("kind", "name", "cause"),
    [
        ("xid", "48", "gpu_memory"),
        ("xid", "74", "nvlink"),
        ("xid", "79", "pcie"),
        ("xid", "119", "gpu_driver"),
        ("xid", "999", "gpu_unavailable"),
        ("check", "gpu_count", "gpu_unavailable"),
        ("check", "row_remap", "gpu_memory"),
        ("check", "mounts", "filesystem"),
        ("check", "ib_link", "network_link"),
        ("finding", "nic_link_downed", "network_link"),
        ("log", "nccl_timeout", "nccl_timeout"),
        ("log", "", "unknown"),
    ],
)
def test_cause(kind, name, cause):
    assert cause_of(Evidence(kind, "n1", name, "high", 0, 0)).name == cause
