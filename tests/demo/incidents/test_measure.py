"""How incidents are evaluated, and the floors that the root diagnosis holds on a few of each."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from peerwatch_demo.incidents.__main__ import main
from peerwatch_demo.incidents.incident import Answer, Incident
from peerwatch_demo.incidents.measure import Evaluation, Said, compare, evaluate, shares, table
from peerwatch_demo.incidents.mechanism import load_mechanisms
from peerwatch_demo.incidents.story import play
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces

# The incidents are evaluated once for all.
pytestmark = pytest.mark.xdist_group("incidents_measured")

NODES = ("a1", "a2", "a3", "b1", "b2", "b3")
NOBODY: frozenset[str] = frozenset()
# Of the jobs of a mechanism the small ones: what is right does not depend on the size.
MOST_NODES = 12


def answer(**right: object) -> Incident:
    """An incident of which this is right to say."""
    base = Answer(frozenset({"hardware"}), frozenset({"any"}), NOBODY, NOBODY, NOBODY)
    job = JobPlaces(NODES, dict(enumerate(NODES)))
    return Incident("case", "it", "development", "7", job, 500.0, 100.0, (), replace(base, **right))


def said(*isolated: str, named: str = "", domain: str = "hardware") -> Said:
    names = {*isolated, *named.split()}
    return Said(frozenset(isolated), frozenset(names), frozenset({domain}), frozenset({"disk"}))


@cache
def a_few_of_each() -> tuple[Evaluation, ...]:
    small = [
        each.model_copy(update={"nodes": (each.nodes[0], max(each.nodes[0], MOST_NODES))})
        for each in load_mechanisms()
    ]
    return tuple(evaluate(play(mechanism, seed)) for mechanism in small for seed in (1, 2))


def test_the_node_at_fault_must_be_taken_out() -> None:
    a2 = answer(isolate=frozenset({"a2"}))
    right, other, nobody = (compare(a2, each) for each in (said("a2"), said("a3"), said()))

    assert (True, True, NOBODY) == (right.host, right.domain, right.healthy_isolated)
    assert (False, frozenset({"a3"})) == (other.host, other.healthy_isolated)
    assert (False, NOBODY) == (nobody.host, nobody.healthy_isolated)


def test_where_only_peers_tell_who_it_is_naming_is_enough() -> None:
    by_peers = answer(isolate=frozenset({"a2"}), tells_domain=False)

    assert compare(by_peers, said(named="a2", domain="unknown")).host
    assert not compare(by_peers, said(domain="unknown")).host


def test_where_nothing_tells_who_it_is_nobody_need_be_named() -> None:
    untold = answer(isolate=frozenset({"a2"}), tells_host=False, tells_domain=False)
    quiet, guessed = (compare(untold, each) for each in (said(domain="unknown"), said("a3")))

    assert (True, True) == (quiet.host, quiet.domain)
    assert (False, frozenset({"a3"})) == (guessed.host, guessed.healthy_isolated)


def test_a_mistake_of_the_program_isolates_nobody() -> None:
    mistake = answer(domains=frozenset({"user"}), named=frozenset({"a2"}))
    right = compare(mistake, said(named="a2", domain="user"))
    wrong = compare(mistake, said("a2"))

    assert (True, True) == (right.host, right.domain)
    assert (False, False, frozenset({"a2"})) == (wrong.host, wrong.domain, wrong.healthy_isolated)


def test_of_several_right_answers_one_must_be_given() -> None:
    rack = answer(may_isolate=frozenset({"a1", "a2", "a3"}))

    assert compare(rack, said("a1", "a3")).host
    assert compare(rack, said(named="a2")).host
    assert not compare(rack, said()).host
    assert not compare(rack, said("a1", "b1")).host


def test_a_node_need_not_be_named_where_it_may_be_the_program() -> None:
    either = answer(domains=frozenset({"hardware", "user"}), may_isolate=frozenset({"a2"}))

    assert compare(either, said(domain="user")).host
    assert not compare(either, said(domain="hardware")).host


def test_the_table_counts_each_part() -> None:
    a2 = answer(isolate=frozenset({"a2"}))
    kept = replace(compare(a2, said("a3")), part="validation")

    lines = table([compare(a2, said("a2")), kept], mechanisms=True).splitlines()

    assert "| development | 1 | 1 | 100.0 % (21-100) |" in lines[2]
    assert lines[3].startswith("| validation | 1 | 1 | 0.0 % (0-79) |")
    assert lines[3].endswith("| 1 |")


def test_the_command_measures_what_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    chosen = ["--only", "gpu_overheats", "--incidents", "2"]

    assert 0 == main([*chosen, "--output", str(out)])
    assert "| development | 1 | 2 |" in capsys.readouterr().out
    assert ["gpu_overheats"] * 2 == [
        json.loads(line)["mechanism"] for line in out.read_text().splitlines()
    ]
    assert 0 == main([*chosen, "--write", str(tmp_path / "cases")])
    assert 2 == len(list((tmp_path / "cases").glob("*/case.json")))
    assert 2 == main(["--only", "no_such_thing"])


def test_floors_on_a_few_of_each_mechanism() -> None:
    found = shares(a_few_of_each())

    assert found.incidents >= 180
    assert found.host / found.incidents >= HOST_FLOOR
    assert found.domain / found.incidents >= DOMAIN_FLOOR
    assert found.healthy_isolated <= MOST_HEALTHY_ISOLATED


# Floors, not goals: docs/evaluation.md has the goals and what was measured on larger jobs.
HOST_FLOOR, DOMAIN_FLOOR, MOST_HEALTHY_ISOLATED = 0.92, 0.9, 0
