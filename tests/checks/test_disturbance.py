"""What others use of a node while something is measured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from peerwatch_checks.check import Context, Options
from peerwatch_checks.disturbance import Disturbance
from peerwatch_checks.evaluation import evaluate, reference

if TYPE_CHECKING:
    from collections.abc import Callable

MEGABYTE = 1_000_000


class Node:
    """A node of two CPUs and a disk, in files; this process uses nothing of it."""

    def __init__(self, folder: Path) -> None:
        self.procfs, self.sysfs = folder / "proc", folder / "sys"
        self.work = folder / "work"
        device = folder.stat().st_dev
        self._disk = self.sysfs / f"dev/block/{os.major(device)}:{os.minor(device)}"
        for each in (self.procfs, self.work, self._disk):
            each.mkdir(parents=True)
        self.use()

    def use(self, *, busy: int = 0, idle: int = 0, steal: int = 0, sectors: int = 0) -> None:
        """Have used so many ticks and sectors since the start."""
        text = f"cpu  {1000 + busy} 50 20 {9000 + idle} 10 0 0 {steal} 0 0\ncpu0 1 2 3\n"
        (self.procfs / "stat").write_text(text)
        (self._disk / "stat").write_text(f" 1 2 {100 + sectors} 4 5 6 {200 + sectors} 8 0 9 10\n")

    def begun(self) -> Disturbance:
        context = Context(Options(), "n1", self.work, 60.0, procfs=self.procfs, sysfs=self.sysfs)
        return Disturbance(context, self.work)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr("os.times", lambda: os.times_result((0.0, 0.0, 0.0, 0.0, 0.0)))
    return Node(tmp_path)


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ({"busy": 30, "idle": 170}, ""),
        ({"busy": 170, "idle": 30}, "Others used 85% of the CPU time meanwhile."),
        ({"busy": 110, "idle": 90}, ""),
        ({"idle": 40, "steal": 160}, "Others used 80% of the CPU time meanwhile."),
        ({"idle": 200, "sectors": 2_000}, ""),
        ({"idle": 200, "sectors": 50_000}, "Others moved 41 MB to and from the disk meanwhile."),
    ],
    ids=["idle", "busy", "one of two CPUs", "hypervisor", "own bytes", "disk"],
)
def test_what_others_use_is_said(node: Node, use: dict[str, int], expected: str) -> None:
    disturbance = node.begun()
    node.use(**use)

    assert expected == disturbance.reason(10 * MEGABYTE)


def test_what_the_check_uses_itself_does_not_disturb_it(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    disturbance = node.begun()
    node.use(busy=180, idle=20)
    monkeypatch.setattr("os.times", lambda: os.times_result((1.0, 0.1, 0.4, 0.2, 0.0)))

    assert disturbance.reason() == ""


@pytest.mark.parametrize(
    "spoil",
    [
        lambda node: (node.procfs / "stat").unlink(),
        lambda node: (node.procfs / "stat").write_text("cpu x\n"),
        lambda node: node.use(),
    ],
    ids=["no file", "no numbers", "no time"],
)
def test_where_nothing_is_known_nothing_is_said(
    node: Node, spoil: Callable[[Node], object]
) -> None:
    disturbance = node.begun()
    spoil(node)

    assert disturbance.reason() == ""


def test_of_a_partition_the_whole_disk_counts(node: Node, tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    link = node.sysfs / f"dev/block/{os.major(device)}:{os.minor(device)}"
    disk = tmp_path / "vda"
    link.rename(disk)
    (disk / "vda1").mkdir()
    (disk / "vda1/partition").write_text("1\n")
    (disk / "vda1/stat").write_text("0 0 0 0 0 0 0\n")
    link.symlink_to(disk / "vda1")
    disturbance = node.begun()
    (disk / "stat").write_text("1 2 90000 4 5 6 200 8 0 9 10\n")

    assert disturbance.reason(MEGABYTE) == "Others moved 45 MB to and from the disk meanwhile."


@pytest.mark.parametrize(
    ("value", "disturbed", "status"),
    [
        (95.0, "Others used it.", "pass"),
        (40.0, "Others used it.", "skipped"),
        (4.0, "Others used it.", "fail"),
        (40.0, "", "fail"),
    ],
)
def test_a_bad_value_counts_unless_others_explain_it(
    value: float, disturbed: str, status: str
) -> None:
    against = reference((100.0,) * 8, (), 0.1)

    found = evaluate(value, "GB/s", against, what="Copy", advice="Do.", disturbed=disturbed)

    assert status == found.status
    assert ("Others used it. So it says nothing" in found.message) == (status == "skipped")
    assert (found.value is None) == (status == "skipped")


def test_a_duration_is_bad_when_it_is_long() -> None:
    against = reference((1.0,) * 8, (), 0.1, higher_is_better=False)

    def status(value: float) -> str:
        return evaluate(
            value,
            "s",
            against,
            what="Step",
            advice="Do.",
            higher_is_better=False,
            disturbed="Others.",
        ).status

    assert ["pass", "skipped", "fail"] == [status(value) for value in (1.0, 3.0, 30.0)]
