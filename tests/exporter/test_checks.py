"""Results of checks in the exporter's exposition."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hardware_cases import FakeClock
from peerwatch_common.check_results.record import Record
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths

if TYPE_CHECKING:
    from pathlib import Path

RECORD = Record(
    *("memory_copy", "host", "", "fail", "low", "It is slow.", 1_700_000_000.0, 2.5, "n1"),
    value=5.0,
    unit="GB/s",
    expected=10.0,
    value_ratio=0.5,
    versions={"cpu": "EPYC"},
)


def collected(folder: Path, **settings: object) -> dict[str, list]:
    config = ExporterConfig.model_validate(settings)
    clock = FakeClock()
    sources = Sources(Paths(folder, folder, folder, folder), clock=clock, monotonic=clock)
    collector = registrations()["checks"].factory(config, sources)
    return {item.spec.name: item.rows for item in collector.collect()}


def test_each_result_is_shown_with_its_time(tmp_path: Path) -> None:
    other = replace(RECORD, check="mounts", status="pass", severity="high")
    other = replace(other, value=None, value_ratio=None)
    (tmp_path / "memory_copy.jsonl").write_text(RECORD.to_json() + "\n")
    (tmp_path / "mounts.jsonl").write_text(replace(other, started=5.0).to_json() + "\n")

    found = collected(tmp_path)

    copy, mounts = ("memory_copy", "host", "", "low"), ("mounts", "host", "", "high")
    assert [(copy, 2), (mounts, 0)] == found["peerwatch_check_status"]
    assert [(copy, 0.5)] == found["peerwatch_check_value_ratio"]
    assert [((*copy, "GB/s", "", "EPYC"), 5.0)] == found["peerwatch_check_value"]
    assert [(copy, 2.5), (mounts, 2.5)] == found["peerwatch_check_duration_seconds"]
    # However old: its age is for queries to assess.
    assert [(copy, 1_700_000_000.0), (mounts, 5.0)] == found[
        "peerwatch_check_last_run_timestamp_seconds"
    ]
    assert [((), 0)] == found["peerwatch_check_bad_files"]


def test_a_bad_file_is_counted_and_costs_no_other(tmp_path: Path) -> None:
    (tmp_path / "memory_copy.jsonl").write_text(RECORD.to_json() + "\n")
    (tmp_path / "torn.jsonl").write_text('{"check":')

    found = collected(tmp_path)

    assert 1 == len(found["peerwatch_check_status"])
    assert [((), 1)] == found["peerwatch_check_bad_files"]


def test_a_node_without_checks_has_no_data(tmp_path: Path) -> None:
    with pytest.raises(NoData, match="No check has run"):
        collected(tmp_path / "none")


def test_a_node_that_is_a_part_of_a_machine_shows_none_of_the_machines(tmp_path: Path) -> None:
    with pytest.raises(NoData, match="not all of it"):
        collected(tmp_path, scope={"kind": "processes", "environment": {"NODE": "1"}})
