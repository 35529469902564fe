"""The recorded jobs: real lines, and nobody is isolated for what a program did."""

from __future__ import annotations

from functools import cache

import pytest

from peerwatch_demo.incidents.measure import Evaluation, evaluate
from peerwatch_demo.incidents.recorded_jobs import FOLDER, load_recorded

# The recordings are evaluated once for all.
pytestmark = pytest.mark.xdist_group("recorded_jobs")


@cache
def evaluations() -> tuple[Evaluation, ...]:
    return tuple(evaluate(incident) for incident in load_recorded())


def test_every_recording_has_an_answer_and_nothing_of_the_machine() -> None:
    recorded = {file.stem for file in FOLDER.glob("*.json")}

    assert recorded == {each.mechanism.removeprefix("recorded_") for each in evaluations()}
    for file in FOLDER.glob("*.json"):
        text = file.read_text()
        assert "/work" not in text.replace("/workspace", ""), file.name
        assert "/tmp/tmp" not in text, file.name


def test_real_lines_are_known_by_the_signatures() -> None:
    known = {
        incident.mechanism.removeprefix("recorded_"): {
            event.name for event in incident.events if event.class_name == "U"
        }
        for incident in load_recorded()
    }

    for fault in ("exception", "import_error", "file_missing", "nan_all"):
        assert known[fault], fault
    assert not known["healthy"]


def test_a_real_job_with_a_tensor_of_another_shape_says_that_its_ranks_do_not_agree() -> None:
    (incident,) = (each for each in load_recorded() if each.mechanism == "recorded_wrong_shape")

    found = [each.rank for each in incident.events if each.name == "collective_mismatch"]

    assert [2] == found


@pytest.mark.parametrize("fault", ["exception", "killed", "wrong_shape", "hangs", "healthy"])
def test_no_healthy_node_is_isolated(fault: str) -> None:
    (found,) = (each for each in evaluations() if each.mechanism == f"recorded_{fault}")

    assert not found.healthy_isolated
