"""Each fault that a check is for, put into a node, is named by the whole program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from checks_faults import FAULTS, UNHURRIED, Fault, FaultyNode, can_mount
from checks_program import Program

if TYPE_CHECKING:
    from pathlib import Path

    from peerwatch_common.check_results.record import Record

# Small, and so much slower that no load of this machine matters.
SMALL = {
    "memory_copy": {"size_bytes": 8 * 1024**2},
    "disk_write_read": {"size_bytes": 1024**2},
    "link_errors": {"seconds": 1.0},
}
TIMES = 30


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    program = Program(tmp_path_factory.mktemp("healthy"))
    program.settings["checks"] = SMALL
    status, records, err = program.run("memory_copy", "disk_write_read", PYTHONPATH=UNHURRIED)
    assert 0 == status, err
    return records


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_named(fault: Fault, healthy: list[Record], tmp_path: Path) -> None:
    if fault.name.endswith("full disk") and not can_mount():
        pytest.skip("this machine lets nobody mount")
    node = FaultyNode(tmp_path, healthy, times=TIMES, checks=SMALL)

    status, records = node.run(fault)

    assert fault.is_named(records), [each.message for each in records]
    assert {"fail": 2, "skipped": 3, "error": 3}[fault.status] == status
    # Nothing else is blamed.
    named = {each.device for each in records if each.status == "fail"}
    assert len(named) == (fault.status == "fail") or fault.name in SEVERAL


# The other precision differs too; the same GPU is missing from all that is expected of it.
SEVERAL = ("flipped bit", "slow disk")
