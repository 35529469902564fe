"""The recording: what is drawn, what is asked for, and what an interrupted one leaves."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pytest

from peerwatch_demo.cluster.faults import FAULTS, Fault, FaultError
from peerwatch_demo.recording import __main__ as record
from peerwatch_demo.recording.__main__ import Recorder, chosen_faults, draw
from peerwatch_demo.recording.live import Line, LiveLog
from peerwatch_demo.recording.round import Folder
from peerwatch_demo.stack.console import Console
from peerwatch_demo.stack.load import load_average
from peerwatch_demo.stack.process import StackError


def line(number: int, fault: str, node: str) -> Line:
    return Line("fault", number, fault, node, f"{fault}-{number:02d}", 0.0, 60.0, 90.0)


class FakeRound:
    """Writes a line for each fault, and breaks off after as many as it is told."""

    def __init__(self, number: int, log: LiveLog, breaks_after: int) -> None:
        self._number = number
        self._log = log
        self._breaks_after = breaks_after

    def faults(self, order: Sequence[tuple[Fault, str]], *, namespaces: bool) -> None:
        for fault, node in order[: self._breaks_after]:
            self._log.add(line(self._number, fault.name, node))
        if self._breaks_after < len(order):
            raise StackError("it broke")


class FakeRecorder(Recorder):
    """Plays rounds that break off after so many faults each."""

    def __init__(self, log: LiveLog, breaks: list[int]) -> None:
        super().__init__(Folder(log.path.parent), log, Console(io.StringIO(), {}), namespaces=True)
        self.breaks = breaks
        self.played = log

    def _round(self, number: int) -> FakeRound:  # type: ignore[override]
        return FakeRound(number, self.played, self.breaks.pop(0))


def test_the_same_seed_draws_the_same_and_rounds_differ() -> None:
    rounds = [draw(FAULTS, number, "7") for number in range(1, 21)]

    assert rounds == [draw(FAULTS, number, "7") for number in range(1, 21)]
    assert len({tuple(fault.name for fault, _ in order) for order in rounds}) > 3
    assert len({node for order in rounds for _, node in order}) > 5


def test_every_fault_is_drawn_once_and_the_dead_node_is_last() -> None:
    for number in range(1, 21):
        names = [fault.name for fault, _ in draw(FAULTS, number, None)]
        assert sorted(names) == sorted(fault.name for fault in FAULTS)
        assert "killed_node" == names[-1]


def test_all_faults_are_the_default_and_a_choice_has_each_once() -> None:
    assert list(FAULTS) == chosen_faults(None, None)
    assert ["memory_hog", "slow_nic"] == [
        fault.name for fault in chosen_faults(["memory_hog", "slow_nic", "memory_hog"], None)
    ]
    with pytest.raises(FaultError, match="needs a network namespace"):
        chosen_faults(None, "not root")


def test_a_broken_round_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    log = LiveLog(tmp_path / "live.jsonl")

    FakeRecorder(log, [2, 1, 2]).faults(3, FAULTS, "7")

    assert [(fault.name, node) for fault, node in draw(FAULTS, 3, "7")] == [
        (line.fault, line.node) for line in log.lines
    ]


def test_a_round_that_breaks_again_and_again_is_given_up(tmp_path: Path) -> None:
    recorder = FakeRecorder(LiveLog(tmp_path / "live.jsonl"), [0, 0, 0, 5])

    with pytest.raises(StackError, match="it broke"):
        recorder.faults(1, FAULTS, None)
    assert [5] == recorder.breaks


def test_a_finished_round_starts_nothing(tmp_path: Path) -> None:
    log = LiveLog(tmp_path / "live.jsonl")
    for fault in FAULTS:
        log.add(line(2, fault.name, "node-0"))

    FakeRecorder(log, []).faults(2, FAULTS, None)


def test_one_healthy_case_is_enough(tmp_path: Path) -> None:
    log = LiveLog(tmp_path / "live.jsonl")
    log.add(Line("healthy", 4, "healthy", "", "healthy-04", 0.0, 0.0, 1800.0))

    FakeRecorder(log, []).healthy(11, 30.0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--fault", "slow"], "'slow' is not a fault of the demo"),
        (["--rounds", "-1"], "must be from 0 to 99"),
        (["--healthy-minutes", "nan"], "must be 0 or more"),
    ],
)
def test_wrong_use_is_said_and_exits_with_2(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = record.main([str(tmp_path / "new"), *arguments])
    except SystemExit as left:
        code = int(left.code or 0)

    assert 2 == code
    assert words in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_file_in_the_folders_place_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()

    assert 2 == record.main([str(tmp_path / "file"), "--fault", "memory_hog"])
    assert "file: cannot be made: File exists" in capsys.readouterr().err


def test_an_earlier_try_keeps_its_data(tmp_path: Path) -> None:
    folder = Folder(tmp_path)

    names = [folder.round(3).name, folder.round(3).name, folder.round(4).name]

    assert ["03-1", "03-2", "04-1"] == names


def test_the_load_is_told_without_process_ids(tmp_path: Path) -> None:
    path = tmp_path / "loadavg"
    path.write_text("0.05 0.65 0.97 2/91 8392\n")

    assert "0.05 0.65 0.97 2/91" == load_average(path)
