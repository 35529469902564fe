"""The events of a case need its case.json only."""

import json
from pathlib import Path

import pytest

from peerwatch_detector.diagnosis.root.evidence.recorded import load_events
from peerwatch_detector.errors import CaseError

ABOUT = {
    "name": "bus",
    "job_id": "7",
    "seconds": 60,
    "nodes": ["a", "b"],
    "gpus_per_node": 2,
    "places": {"a": {"leaf": "l1"}},
    "addresses": {"10.0.0.2": "b"},
    "events": [
        {"time": 5, "kind": "log", "name": "nccl_closed", "class": "D", "node": "a", "rank": 0},
        {"time": 4, "kind": "xid", "name": "79", "node": "b"},
    ],
}


def write(folder: Path, about: object) -> Path:
    (folder / "case.json").write_text(json.dumps(about))
    return folder


def test_job_and_events_are_read(tmp_path: Path) -> None:
    case = load_events(write(tmp_path, ABOUT))

    assert ("bus", "7", 60.0) == (case.name, case.job_id, case.seconds)
    assert ["79", "nccl_closed"] == [each.name for each in case.events]
    assert {0: "a", 1: "a", 2: "b", 3: "b"} == case.job.ranks
    assert {"a": {"leaf": "l1"}} == case.job.places
    assert {"10.0.0.2": "b"} == case.job.addresses


def test_ranks_may_be_listed(tmp_path: Path) -> None:
    case = load_events(write(tmp_path, ABOUT | {"ranks": {"a": [1], "b": [0, 2]}}))

    assert {1: "a", 0: "b", 2: "b"} == case.job.ranks


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"nodes": []}, "at least one"),
        ({"nodes": ["a", "a"]}, "each once"),
        ({"ranks": {"z": [0]}}, "not nodes of the job"),
        ({"ranks": {"a": [0], "b": [0]}}, "once"),
        ({"ranks": {"a": 3}}, "ranks of 'a': 3; it must be a list"),
        ({"ranks": {"a": None}}, "ranks of 'a': None; it must be a list"),
        ({"seconds": 10**400}, "is no description of a case"),
        ({"events": [{"time": 10**400, "kind": "xid", "name": "79"}]}, "must be a finite number"),
        ({"places": {"z": {}}}, "not nodes of the job"),
        ({"places": ["a"]}, "places is"),
        ({"addresses": {"10.0.0.9": "z"}}, "not nodes of the job"),
        ({"seconds": "long"}, "is no description of a case"),
        ({"events": {}}, "must be a list"),
    ],
)
def test_a_mistake_names_the_entry(
    tmp_path: Path, changes: dict[str, object], expected: str
) -> None:
    with pytest.raises(CaseError, match=expected):
        load_events(write(tmp_path, ABOUT | changes))


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"name": "x"}'])
def test_what_is_no_case_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "case.json").write_text(text)

    with pytest.raises(CaseError, match=r"case\.json"):
        load_events(tmp_path)


def test_a_folder_without_a_case_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="cannot be read"):
        load_events(tmp_path)


def test_a_description_in_another_encoding_is_told_without_being_shown(tmp_path: Path) -> None:
    text = json.dumps(ABOUT)
    (tmp_path / "case.json").write_bytes(text.encode("utf-8-sig"))
    assert "a" == load_events(tmp_path).job.nodes[0]
    (tmp_path / "case.json").write_bytes((text + " " * 10_000).encode("utf-16"))
    with pytest.raises(CaseError, match=r"is no text in UTF-8: .* at byte 0; save it") as caught:
        load_events(tmp_path)
    assert len(str(caught.value)) < 400
