"""What the spool folder keeps, and what is read of it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from peerwatch_checks.results.atomic_file import write_file
from peerwatch_checks.results.peers import peers_of
from peerwatch_checks.results.spool import Spool
from peerwatch_common.check_results.record import Record
from peerwatch_common.check_results.spool import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_RECORDS,
    read_records,
    read_spool,
)
from peerwatch_common.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

RECORD = Record("copy", "host", "", "pass", "low", "Well.", 100.0, 1.0, "n1", value=1.0)


def test_a_run_replaces_what_was_known_of_its_check(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "new" / "spool")
    spool.write(
        "copy", [replace(RECORD, device="gpu0"), replace(RECORD, device="gpu1")], limited=False
    )
    spool.write("mounts", [replace(RECORD, check="mounts")], limited=False)
    spool.write("copy", [replace(RECORD, device="gpu1", started=200.0)], limited=False)

    found = read_spool(tmp_path / "new" / "spool")

    assert {("copy", "host", "gpu1"), ("mounts", "host", "")} == {
        each.key for each in found.records
    }
    assert () == found.problems


def test_a_run_on_some_gpus_leaves_the_others(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.write("copy", [replace(RECORD, device=f"gpu{n}") for n in range(3)], limited=False)
    spool.write("copy", [replace(RECORD, device="gpu1", started=200.0)], limited=True)

    found = {each.device: each.started for each in read_spool(tmp_path).records}

    assert {"gpu0": 100.0, "gpu1": 200.0, "gpu2": 100.0} == found


def test_what_did_not_run_replaces_only_what_did_not_run(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    skipped = replace(RECORD, status="skipped", started=200.0)
    spool.write("copy", [skipped], limited=False)
    assert ["skipped"] == [each.status for each in read_spool(tmp_path).records]

    spool.write("copy", [RECORD], limited=False)
    spool.write("copy", [skipped], limited=False)

    assert ["pass"] == [each.status for each in read_spool(tmp_path).records]


def test_the_last_runs_that_passed_are_kept(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for number in range(25):
        spool.write(
            "copy", [replace(RECORD, started=float(number), value=float(number))], limited=False
        )
    spool.write("copy", [replace(RECORD, status="fail", value=1e9)], limited=False)

    assert list(range(5, 25)) == [record.value for record in spool.earlier("copy")]
    # They are none of the results.
    assert ["fail"] == [record.status for record in read_spool(tmp_path).records]


def test_a_bad_file_costs_its_own_records_only(tmp_path: Path) -> None:
    Spool(tmp_path).write("copy", [RECORD], limited=False)
    (tmp_path / "torn.jsonl").write_text(replace(RECORD, check="torn").to_json() + '\n{"check":')
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\x00")
    (tmp_path / "long.jsonl").write_text(" " * (MAX_FILE_BYTES + 1))
    (tmp_path / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "link.jsonl").symlink_to("/etc/hostname")
    (tmp_path / "other.txt").write_text("no result")

    found = read_spool(tmp_path)

    assert {"copy", "torn"} == {record.check for record in found.records}
    assert 6 == len(found.problems)
    assert any("torn.jsonl, line 2: It is no JSON" in problem for problem in found.problems)


def test_neither_files_nor_records_are_read_without_end(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 1):
        (tmp_path / f"{number}.jsonl").touch()
    (tmp_path / "0.jsonl").write_text(f"{RECORD.to_json()}\n" * (MAX_RECORDS + 1))

    assert [MAX_RECORDS] == [len(read_records(tmp_path / "0.jsonl").records)]
    assert 2 == len(read_spool(tmp_path).problems)


def test_a_file_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checks.prom"
    write_file(path, "first")

    def no_space(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        write_file(path, "second")

    assert ("first", [path]) == (path.read_text(), list(tmp_path.iterdir()))


def test_peers_are_other_nodes_at_their_newest(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    lines = [
        replace(RECORD, node="n2", value=1.0),
        replace(RECORD, node="n2", value=2.0, started=200.0),
        replace(RECORD, node="n3", value=3.0),
        replace(RECORD, node="n1", value=4.0),
        replace(RECORD, node="n2", check="other", value=5.0),
    ]
    path.write_text("".join(f"{record.to_json()}\n" for record in lines))

    found = peers_of([path], "n1")

    assert [2.0, 3.0] == sorted(record.value or 0 for record in found("copy"))
    assert () == found("unknown")


@pytest.mark.parametrize("text", [None, "no record\n"], ids=["missing", "bad"])
def test_peers_that_cannot_be_read_are_a_mistake(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    if text is not None:
        path.write_text(text)

    with pytest.raises(ConfigError, match="--peers"):
        peers_of([path], "n1")
