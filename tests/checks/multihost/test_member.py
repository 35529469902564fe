"""Which node of a test a process is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peerwatch_checks.check import Skip
from peerwatch_checks.checks.multi.reference_training import outcomes as trained
from peerwatch_checks.multihost.member import Member, first_host, first_node_gone, member_of
from peerwatch_checks.multihost.pair_outcomes import Words, outcomes
from peerwatch_checks.multihost.rounds import Result
from peerwatch_checks.multihost.segment_runs import SegmentResult
from peerwatch_checks.pairs.naming import Verdict
from peerwatch_checks.segments.search import Found

TORCHRUN = {
    "RANK": "17",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "32",
    "LOCAL_WORLD_SIZE": "8",
    "GROUP_RANK": "2",
    "MASTER_ADDR": "gpu-000",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}


def test_torchrun_says_node_and_store() -> None:
    member = member_of(TORCHRUN)
    assert (member.index, member.count, member.leads) == (2, 4, False)
    assert (member.host, member.port, member.agent_store) == ("gpu-000", 29500, True)
    assert member_of(TORCHRUN | {"RANK": "16", "LOCAL_RANK": "0"}).leads


def test_a_rank_and_a_size_are_enough() -> None:
    member = member_of({"RANK": "3", "WORLD_SIZE": "5", "MASTER_ADDR": "10.0.0.1"})
    assert (member.index, member.count, member.leads, member.agent_store) == (3, 5, True, False)


def test_slurm_says_the_node_and_the_first_host() -> None:
    member = member_of(
        {
            "SLURM_NODEID": "1",
            "SLURM_NNODES": "3",
            "SLURM_LOCALID": "0",
            "SLURM_STEP_NODELIST": "gpu-[007-009]",
        }
    )
    assert (member.index, member.count, member.leads, member.host) == (1, 3, True, "gpu-007")


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("n[1-3]", "n1"),
        ("gpu-[007,012]", "gpu-007"),
        ("a,b[1-2]", "a"),
        ("r[1-2]-gpu,x", "r1-gpu"),
        ("", ""),
    ],
)
def test_the_first_host_of_slurms_list(nodes: str, first: str) -> None:
    assert first_host(nodes) == first


def test_a_process_of_its_own_is_told_how_to_start() -> None:
    with pytest.raises(Skip, match="torchrun"):
        member_of({"PATH": "/bin"})


def test_what_is_no_number_is_named() -> None:
    with pytest.raises(ValueError, match="WORLD_SIZE is 'many'"):
        member_of({"RANK": "0", "WORLD_SIZE": "many"})


def test_the_address_is_that_of_the_way_to_the_first_node() -> None:
    member = member_of({"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"})
    assert member.address() == "127.0.0.1"


def test_a_first_node_that_does_not_answer_is_said_by_the_others() -> None:
    member = Member(index=3, count=8, leads=True, host="gpu-007", port=1)
    outcome = first_node_gone(member, RuntimeError("wait timeout after 5ms\nat 0x0"))
    assert outcome.status == "error"
    assert "The first node, gpu-007, at which all meet, did not answer (wait t" in outcome.message
    with pytest.raises(RuntimeError, match="address in use"):
        first_node_gone(replace(member, index=0), RuntimeError("address in use"))


def test_who_comes_too_late_says_so_and_is_not_tested():
    late = Member(2, 3, leads=True, host="a", port=1)
    names = {0: "a", 1: "b"}
    pairs = Result(names, (2,), {("a", "b"): 9.0}, {}, 1, Verdict(9.0, ()))
    segments = SegmentResult(names, (2,), 0, Found((), 0.0))

    for (outcome,) in (outcomes(pairs, late, Words("GB/s", "")), trained(segments, late)):
        assert "error" == outcome.status
        assert "Node 2 came after the others had begun" in outcome.message
