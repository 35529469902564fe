"""Played incidents: possible, reproducible, and with what is missing left out."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import pytest

from peerwatch_demo.incidents.hosts import draw_hosts
from peerwatch_demo.incidents.incident import Incident
from peerwatch_demo.incidents.losses import draw_losses
from peerwatch_demo.incidents.mechanism import Mechanism, load_mechanisms
from peerwatch_demo.incidents.story import play
from peerwatch_detector.diagnosis.root.evidence.evidence import MOST_EVENTS, Evidence
from peerwatch_detector.diagnosis.root.evidence.recorded import load_events

SEEDS = range(3)


@cache
def shipped() -> tuple[Mechanism, ...]:
    return load_mechanisms()


def small(name: str) -> Mechanism:
    """A mechanism in jobs that are quickly played."""
    (found,) = (each for each in shipped() if each.name == name)
    low, _ = found.nodes
    return found.model_copy(update={"nodes": (low, max(low, 12))})


def played(name: str) -> list[Incident]:
    return [play(small(name), seed) for seed in SEEDS]


def test_a_seed_gives_the_same_incident_and_another_seed_another() -> None:
    first, again = (play(small("gpu_off_the_bus"), 5) for _ in range(2))

    assert first == again
    assert first.events != play(small("gpu_off_the_bus"), 6).events


def test_every_mechanism_can_be_played() -> None:
    for mechanism in shipped():
        incident = play(small(mechanism.name), 1)

        assert 0 < len(incident.events) <= MOST_EVENTS or incident.missing, mechanism.name
        assert incident.answer.isolate <= set(incident.job.nodes)
        assert list(incident.events) == sorted(incident.events, key=lambda each: each.time)


def test_a_rank_ends_once_and_says_nothing_later() -> None:
    for incident in played("gpu_lost_then_neighbours_crash"):
        ends = [each for each in incident.events if each.kind == "process"]

        assert len({each.rank for each in ends}) == len(ends)


def test_a_host_that_vanished_is_silent() -> None:
    for incident in played("kernel_panic"):
        (node,) = incident.answer.isolate
        late = [
            each
            for each in incident.events
            if each.node == node and each.time > incident.onset_seconds + 30
        ]

        assert {each.kind for each in late} <= {"absent", "heartbeat", "boot"}


def test_many_complain_and_one_fails() -> None:
    incident = play(small("gpu_off_the_bus").model_copy(update={"nodes": (12, 12)}), 0)
    (node,) = incident.answer.isolate
    hosts = {each.node for each in incident.events if each.class_name in {"D", "N"}}

    assert {node} == {each.node for each in incident.events if each.name == "79"}
    assert len(hosts - {node}) >= 2


def test_what_is_missing_does_not_reach_the_diagnosis() -> None:
    hosts = draw_hosts(Random(1), (6, 6), {})
    drawn = [draw_losses(Random(seed), hosts) for seed in range(400)]
    without = [each for each in drawn if "kernel log" in each.sources]
    xid = Evidence(time=1.0, kind="xid", name="79", node=hosts.names[0])

    assert any(not each.sources for each in drawn)
    assert without
    assert not [each for each in without if each.leaves(xid)]
    assert all(each.leaves(replace(xid, kind="absent")) for each in drawn)


def test_an_error_names_its_peer_in_one_way() -> None:
    hosts = draw_hosts(Random(1), (6, 6), {})
    lost = Evidence(
        time=1.0,
        kind="log",
        name="lost",
        class_name="D",
        peer_node="a",
        peer_rank=3,
        peer_address="10.0.0.1",
    )

    for seed in range(40):
        said = draw_losses(Random(seed), hosts).of_evidence(lost)

        assert 1 == (said.peer_rank is not None) + (not said.peer_rank and bool(said.peer_address))


@pytest.mark.parametrize("name", ["two_gpus_on_two_hosts", "rack_loses_power", "job_ends_well"])
def test_a_case_that_was_written_is_read_back(name: str, tmp_path: Path) -> None:
    incident = play(small(name), 2)
    incident.write(tmp_path / "case")
    read = load_events(tmp_path / "case")

    assert incident.job == read.job
    assert (incident.name, incident.job_id, incident.seconds) == (
        read.name,
        read.job_id,
        read.seconds,
    )
    assert len(incident.events) == len(read.events)
