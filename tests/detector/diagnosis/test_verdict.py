"""A verdict is a finding only where it names a node with enough evidence."""

from dataclasses import replace

import pytest

from each_case import each_case
from peerwatch_detector.diagnosis.meanings import meaning_of_class
from peerwatch_detector.diagnosis.verdict import CLASS_NAMES, SYMPTOMS, Verdict

VERDICT = Verdict(
    job_id="llm",
    node="c4",
    rank=3,
    class_name="not_launched",
    domain="hardware",
    confidence="sure",
    action="isolate",
    summary="rank 3 on node c4 did not launch all_reduce 1041",
    victims=(0, 1, 2),
    start_time=1000.0,
)


def test_the_classes_are_a_closed_list_of_fifteen():
    assert len(set(CLASS_NAMES)) == len(CLASS_NAMES) == 15


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"domain": "software", "confidence": "likely"}, True),
        ({"domain": "unknown"}, True),
        ({"node": ""}, False),
        ({"domain": "user"}, False),
        ({"domain": "none"}, False),
        ({"confidence": "undecided"}, False),
    ],
)
def test_a_node_at_fault_needs_a_name_a_domain_and_confidence(changes, expected):
    assert replace(VERDICT, **changes).names_node is expected


@pytest.mark.parametrize(
    ("action", "severity"),
    [
        ("isolate", "critical"),
        ("replace", "critical"),
        ("drain", "warning"),
        ("restart", None),
        ("inspect", None),
    ],
)
def test_a_root_is_as_urgent_as_what_is_to_be_done(action, severity):
    root = replace(VERDICT, class_name="gpu_unavailable", action=action)
    assert severity == root.severity
    assert replace(root, node="").severity is None
    assert replace(root, confidence="undecided").severity is None


@each_case("name", [*CLASS_NAMES, *SYMPTOMS])
def test_every_class_and_symptom_has_a_meaning(name):
    meaning = meaning_of_class(name)
    assert meaning.text.endswith(".")
    assert meaning.first_check.endswith(".")
