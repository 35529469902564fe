"""From own transfer times of groups, and from segments sent again, to the node that is slow."""

from __future__ import annotations

import pytest

from detector.diagnosis.exported import series
from detector.diagnosis.transfer_series import TransferJob, healthy
from peerwatch_detector.diagnosis.collectives.slowness.communication_diagnoser import (
    CommunicationDiagnoser,
)


def times(groups, slow, seconds=0.045, usual=0.007):
    return {name: seconds if name in slow else usual for name in groups}


def test_s2_a_rail_is_told_and_no_node_named():
    """Eight nodes of eight GPUs: a group for each GPU index spans all nodes."""
    groups = {f"DP-{gpu}": tuple(range(gpu, 64, 8)) for gpu in range(8)}

    (verdict,) = TransferJob(groups, times(groups, {"DP-3"}), per_node=8).diagnosed()

    assert verdict.class_name == "communication_straggler"
    assert (verdict.node, verdict.confidence, verdict.names_node) == ("", "undecided", False)
    assert "takes 45 ms beside the waiting, 6.4 times as long" in verdict.summary
    assert "group DP-3 (ranks 3,11,19,27,35,43,51,59)" in verdict.summary


def test_s3_the_node_that_all_slow_groups_have_in_common_is_named():
    groups = {
        "A-0": (0, 1, 2, 3), "A-1": (4, 5, 6, 7), "A-2": (8, 9, 10, 11),
        "B-0": (2, 4, 8), "B-1": (0, 5, 9), "B-2": (1, 6, 10), "B-3": (3, 7, 11),
    }  # fmt: skip

    (verdict,) = TransferJob(groups, times(groups, {"A-0", "B-0"})).diagnosed()

    assert (verdict.node, verdict.rank, verdict.domain) == ("n2", 2, "hardware")
    assert (verdict.confidence, verdict.names_node) == ("likely", True)
    assert 2 not in verdict.victims


def test_all_ranks_of_a_node_name_the_node():
    """Two ranks on each node: the groups of both that go through node 1 are slow."""
    groups = {
        "DP-0": (0, 2), "DP-1": (1, 3), "DP-2": (4, 6), "DP-3": (5, 7), "DP-4": (8, 10),
        "DP-5": (9, 11), "PP-0": (2, 6), "PP-1": (3, 7), "PP-2": (0, 4), "PP-3": (1, 5),
        "PP-4": (4, 8), "PP-5": (5, 9),
    }  # fmt: skip
    slow = {"DP-0", "DP-1", "PP-0", "PP-1"}

    (verdict,) = TransferJob(groups, times(groups, slow), per_node=2).diagnosed()

    assert (verdict.node, verdict.rank) == ("n1", None)


def test_links_inside_a_node_are_compared_among_nodes():
    groups = {f"TP-{node}": (2 * node, 2 * node + 1) for node in range(4)}

    (verdict,) = TransferJob(groups, times(groups, {"TP-2"}), per_node=2).diagnosed()

    assert verdict.node == "n2"


@pytest.mark.parametrize(
    ("slow", "seconds"),
    [
        # One window is a pause of the fabric.
        ("A-0", 55.0),
        ("", 300.0),
    ],
)
def test_nothing_is_said_of_a_pause_or_of_health(slow, seconds):
    groups = {f"A-{n}": (n, n + 10) for n in range(4)}

    assert TransferJob(groups, times(groups, {slow})).diagnosed(seconds) == []


def test_what_costs_the_job_little_is_not_said():
    groups = {f"A-{n}": (n, n + 10) for n in range(4)}

    assert TransferJob(groups, times(groups, {"A-0"}, 0.0045, 0.0007)).diagnosed() == []


def test_two_groups_of_a_kind_have_no_typical_one():
    groups = {"A-0": (0, 1), "A-1": (2, 3), "B-0": (0, 2), "B-1": (1, 3)}

    assert TransferJob(groups, times(groups, {"A-0"})).diagnosed() == []


def test_a_group_that_moves_more_takes_longer_and_is_not_slow():
    """A stage with the embeddings: its gradients are larger in every replica."""
    job = TransferJob(groups := {f"A-{n}": (n, n + 10) for n in range(4)}, times(groups, {"A-0"}))
    found = job.answers()
    found["volume"][0].values[-1] *= 6
    diagnoser = CommunicationDiagnoser("llm")

    assert [diagnoser.diagnose(found, 1e9 + 60 * n) for n in range(5)] == [[]] * 5


def test_groups_that_share_a_name_are_told_apart_by_their_nodes():
    """Device meshes of torch count their groups alike: four pairs that are all called "1"."""
    pairs = [(0, 1), (2, 3), (4, 5), (6, 7)]
    job = TransferJob(
        groups := {f"mesh-{n}": pair for n, pair in enumerate(pairs)}, times(groups, {"mesh-2"})
    )
    found = job.answers()
    for name in ("transfer", "membership"):
        for each in found[name]:
            each.labels["group"] = "1"
    for name in ("calls", "volume"):
        found[name] = found[name][:1]
        found[name][0].labels["group"] = "1"
    diagnoser = CommunicationDiagnoser("llm")
    for n in range(3):
        said = diagnoser.diagnose(found, 1e9 + 60 * n)

    (verdict,) = said
    assert verdict.node == ""
    assert "group 1 (4-5)" in verdict.summary


def test_of_random_healthy_layouts_nobody_is_named():
    said = {seed: verdicts for seed in range(250) if (verdicts := healthy(seed).diagnosed())}

    assert said == {}


PAIRS = {"0": (0, 1, 2, 3), "1": (0, 1), "2": (2, 3)}


def gloo(loss, queued=()):
    """Return what is said of a job over TCP, whose durations nobody measures.

    ``queued`` is what waits in the send queues, in bytes by node.
    """
    job = TransferJob(PAIRS, times(PAIRS, {}), loss=loss)
    diagnoser, verdicts = CommunicationDiagnoser("llm"), []
    for passed in range(0, 90, 5):
        found = job.answers()
        found["transfer"] = found["calls"] = []
        found["queued"] = [series({"node": node}, size) for node, size in dict(queued).items()]
        verdicts = list(diagnoser.diagnose(found, 1e9 + passed))
        if passed < 75:
            assert verdicts == []
    return verdicts


def test_over_tcp_the_node_that_sends_much_again_is_named():
    (verdict,) = gloo({"n2": 0.39})

    assert (verdict.node, verdict.rank, verdict.names_node) == ("n2", 2, True)
    assert verdict.victims == (0, 1, 3)
    assert "rank 2 on node n2 sends 39% of its TCP segments again" in verdict.summary


def test_where_others_lose_as_much_it_is_no_nodes_link():
    assert gloo({"n2": 0.06, "n1": 0.04}) == []


def test_over_tcp_full_queues_without_loss_are_undecided_between_sender_and_receiver():
    (verdict,) = gloo({}, {"n2": 3.1e6, "n3": 4e5})

    assert (verdict.class_name, verdict.node, verdict.rank) == ("communication_straggler", "n2", 2)
    assert (verdict.confidence, verdict.names_node, verdict.start_time) == (
        "undecided",
        False,
        1e9,
    )
    assert "3.1 MB of what it sends over TCP wait to be delivered" in verdict.summary
    assert "its link is slow, or whoever receives it is" in verdict.summary


@pytest.mark.parametrize(
    "queued",
    [{"n2": 3.1e6, "n1": 2e6}, {}],
    ids=["as full elsewhere: the fabric", "empty"],
)
def test_where_queues_are_alike_nobody_is_said_to_be_slow(queued):
    assert gloo({}, queued) == []


def test_a_node_that_loses_what_it_sends_explains_full_queues():
    (verdict,) = gloo({"n1": 0.39}, {"n2": 3.1e6})

    assert (verdict.node, verdict.confidence) == ("n1", "likely")


def test_what_is_missing_costs_only_itself():
    groups = {f"A-{n}": (n, n + 10) for n in range(4)}
    for name in CommunicationDiagnoser.queries:
        diagnoser = CommunicationDiagnoser("llm")
        found = {**TransferJob(groups, times(groups, {"A-0"})).answers(), name: []}
        for n in range(3):
            diagnoser.diagnose(found, 1e9 + 60 * n)
