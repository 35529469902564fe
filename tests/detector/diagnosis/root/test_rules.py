"""The table of rules is complete, and an observation falls under its most special rule."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.diagnosis.root.failed_job import ev
from peerwatch_detector.diagnosis.root.algorithm.episode import process_name
from peerwatch_detector.diagnosis.root.evidence.evidence import KINDS, LOG_CLASSES
from peerwatch_detector.diagnosis.root.taxonomy.rule import RuleBook
from peerwatch_detector.diagnosis.root.taxonomy.rules import read_rules, rule_book
from signature_tables import shipped_signatures

ROW: dict[str, Any] = {
    "role": "hint",
    "symptom": "unknown",
    "domain": "unknown",
    "duration": "transient",
    "action": "inspect",
    "says": "x",
    "when": ["xid:1"],
    "source": "y",
}


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (ev(0, "xid", "79"), "gpu_off_bus"),
        (ev(0, "xid", "79", class_name="watch"), "gpu_off_bus"),
        (ev(0, "xid", "997", class_name="hardware"), "gpu_hardware"),
        (ev(0, "xid", "997"), "unknown_xid"),
        (ev(0, "xid", "45"), "gpu_aftermath"),
        (ev(0, "kernel", "nvme_lost", class_name="H"), "disk_gone"),
        (ev(0, "kernel", "of_the_user", class_name="H"), "other_host_line"),
        (ev(0, "log", "cuda_out_of_memory", class_name="U"), "gpu_memory_full"),
        (ev(0, "log", "of_the_user", class_name="U"), "program_error"),
        (ev(0, "log", "hint", class_name="X"), "noise"),
        (ev(0, "nic", "symbol_error"), "nic_errors"),
        (ev(0, "check", "nvlink", class_name="fail"), "check_failed"),
        (ev(0, "check", "nvlink", class_name="pass"), "noise"),
    ],
)
def test_the_most_special_rule_counts(evidence: Any, expected: str) -> None:
    rule = rule_book().rule_of(evidence)

    assert rule is not None
    assert expected == rule.name


@given(st.sampled_from(KINDS), st.sampled_from(LOG_CLASSES), st.text(max_size=8))
def test_every_observation_has_a_rule(kind: Any, class_name: str, name: str) -> None:
    assert rule_book().rule_of(ev(0, kind, name, class_name=class_name)) is not None


def test_only_rules_that_decide_isolate() -> None:
    deciding = {"critical", "weak", "suspect", "broken", "hint", "storage"}
    for rule in rule_book().by_key.values():
        assert rule.source
        if rule.action in ("isolate", "replace"):
            assert rule.role in deciding


@pytest.mark.parametrize(
    ("name", "more", "expected"),
    [
        ("killed", {"value": 9.0}, "SIGKILL"),
        ("killed", {"value": -11.0}, "SIGSEGV"),
        ("killed", {"value": 10_000.0}, "killed"),
        ("killed", {"text": "ended by SIGBUS"}, "SIGBUS"),
        ("exited", {"text": "builtins.ValueError"}, "exception"),
        ("exited", {"text": "torch.distributed.DistBackendError"}, "exited"),
        ("exited", {"text": "RuntimeError"}, "exited"),
        ("exited", {"value": 1.0}, "exited"),
        ("stopped", {}, "stopped"),
    ],
)
def test_a_process_is_known_by_what_it_ended_of(
    name: str, more: dict[str, Any], expected: str
) -> None:
    assert expected == process_name(ev(0, "process", name, **more))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({"role": "boss"}, "role is 'boss'"), ({"action": "pray"}, "there are isolate")],
)
def test_a_value_that_is_not_allowed_is_named(changes: dict[str, str], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        read_rules({"rules": {"a": ROW | changes}})


def test_rules_name_signatures_that_exist() -> None:
    known = {each.id for each in shipped_signatures().signatures}
    named = {
        name
        for key in rule_book().by_key
        if (name := key.partition(":")[2]) != "*" and key.startswith(("log:", "kernel:"))
    }
    # The classes of host_kernel_events_total, where logs are not collected.
    counted = {"mlx5", "mce", "hung_task", "oom", "nvlink", "apei", "kernel_xid"}

    assert set() == named - known - counted


def test_two_rules_cannot_claim_the_same() -> None:
    with pytest.raises(ValueError, match="xid:1 is claimed by a and b"):
        RuleBook(read_rules({"rules": {"a": ROW, "b": ROW}}))
