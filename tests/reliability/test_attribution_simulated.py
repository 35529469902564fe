"""Ends whose cause is known, with evidence that is noisy in the ways that the literature counts."""

from __future__ import annotations

import random

from peerwatch_reliability.accounting.attempts import chains_of
from peerwatch_reliability.accounting.attribution import EvidenceByNode, attribution_of
from peerwatch_reliability.records import Evidence
from reliability_rows import T0, row

# What a fault shows as: its check, and the XID that may come with it.
FAULTS = {
    "gpu_memory": ("ecc_errors", "48"),
    "nvlink": ("nvlink_errors", "74"),
    "pcie": ("pcie_link", "79"),
    "network_link": ("ib_link", None),
}
END = 50_000.0


def simulated(draw):
    """Return the truth (a cause, or ``user``), the node, the state, and what was observed."""
    nodes = [f"n{number}" for number in range(16)]
    node, seen = draw.choice(nodes), []
    truth = draw.choice([*FAULTS, "user", "user"])
    state = "failed"

    def see(kind, name, severity, where, late=60.0):
        at = T0 + END + draw.uniform(-300, late)
        seen.append(Evidence(kind, where, name, severity, at, at))

    if truth == "user":
        if draw.random() < 0.7:
            see("log", "user_traceback", "high", node)
    else:
        check, xid = FAULTS[truth]
        if draw.random() < 0.5:
            state = "node_fail"
        # The check misses some, and so does the kernel log: PCIe fires without an XID in half.
        if draw.random() < 0.88:
            see("check", check, "high", node, 240)
        if xid and draw.random() < 0.6:
            see("xid", xid, "high", node)
        # A fault of similar priority at the same time, on the same node.
        if draw.random() < 0.04:
            other = draw.choice([name for name in FAULTS if name != truth])
            see("check", FAULTS[other][0], "high", node)
        # Its peers wait for it, and the program dies with an exception.
        see("log", "nccl_timeout", "high", draw.choice(nodes))
        if draw.random() < 0.5:
            see("log", "user_traceback", "high", draw.choice(nodes))
    # Of healthy jobs, 1 % see a failed check; many see low ones.
    if draw.random() < 0.01:
        see("check", FAULTS[draw.choice(list(FAULTS))][0], "high", draw.choice(nodes))
    if draw.random() < 0.2:
        see("check", "disk_usage", "low", draw.choice(nodes))
    return truth, node, state, seen, nodes


def test_precision_and_recall():
    draw = random.Random(18)
    named = right = faults = timeouts = 0
    for _ in range(3000):
        truth, node, state, seen, nodes = simulated(draw)
        job = row("1", 1, state, 0, 0, END, nodes=tuple(nodes))
        attempt = chains_of([job], T0 + 1e6)[0].first
        found = attribution_of(attempt, EvidenceByNode(seen).around(attempt))
        faults += truth != "user"
        timeouts += found.cause.name == "nccl_timeout"
        # What rests on the scheduler's word alone names no part.
        if found.is_failure_of_infrastructure and found.by is not None:
            named += 1
            right += (found.cause.name, found.node) == (truth, node)
    assert right / named >= 0.90
    assert right / faults >= 0.85
    assert timeouts == 0
