"""Every signature matches what programs really write, and says what the line says."""

from __future__ import annotations

from pathlib import Path

import pytest

from each_case import each_case
from peerwatch_common.signatures.matcher import LogMatcher
from signature_tables import shipped_signatures, shipped_table
from yaml_files import read_yaml

MESSAGES = read_yaml(Path(__file__).with_name("messages.yaml"))
SIGNATURES = shipped_signatures()
TABLES = {log: shipped_table(log) for log in ("job", "kernel")}
OWN = ("rank", "local_rank", "peer_rank", "peer_address")
CASES = [
    pytest.param(name, case, id=f"{name}-{number}")
    for name, cases in MESSAGES.items()
    for number, case in enumerate(cases)
]


def test_every_signature_has_a_message_and_every_message_its_origin() -> None:
    assert [each.id for each in SIGNATURES.signatures if each.id not in MESSAGES] == []
    assert all(case["origin"] for cases in MESSAGES.values() for case in cases)


@each_case("name, case", CASES)
def test_a_message_is_matched_by_its_signature(name: str, case: dict) -> None:
    signature = SIGNATURES[name]
    text = case.get("text")
    if text is None:
        text = (
            f'Traceback (most recent call last):\n  File "x.py", line 1\n    x\n{case["exception"]}'
        )
    matcher = LogMatcher(TABLES[signature.log or "job"])
    (event,) = matcher.feed(f"healthy\n{text}\nhealthy\n".encode())
    assert event.signature is signature
    assert event.cascade is case.get("cascade", False)
    found = {name: getattr(event, name) for name in OWN} | dict(event.fields)
    expected = case.get("expect", {})
    assert {name: found.get(name) for name in expected} == expected


def test_what_only_the_kernel_logs_is_not_looked_for_in_a_job() -> None:
    line = b"NVRM: Xid (PCI:0000:9f:00): 79, GPU has fallen off the bus.\n"
    assert LogMatcher(TABLES["job"]).feed(line) == []
    assert len(LogMatcher(TABLES["kernel"]).feed(line)) == 1
