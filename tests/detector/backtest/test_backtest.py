"""The commands backtest and evaluate, and that nothing found uses what comes later."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from detector.backtest_case import METHODS, QUICK, QUICK_YAML, faulty_case
from detector.fakes import ONSET
from detector.small_case import write_case
from peerwatch_demo.simulator import FAMILIES, simulate
from peerwatch_demo.simulator import write_case as write_simulated
from peerwatch_detector.__main__ import main
from peerwatch_detector.backtest.cases import load_case, save_case
from peerwatch_detector.backtest.replay import cycles
from peerwatch_detector.backtest.run import CaseResult, replay_cases, variant
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.errors import CaseError
from peerwatch_detector.models.store import EMPTY


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A crash that halts the job, and a slow link that does not; both with every usual sign."""
    top = tmp_path_factory.mktemp("simulated")
    family = replace(
        FAMILIES["plain"], nodes=(8,), seconds=900, onset=(400, 420), hidden_effects=0.0
    )
    wanted, folders = {True, False}, []
    for seed in range(92_000, 92_100):
        case = simulate(f"case-{seed}", family, seed, faulty=True)
        halts = case.fault.halt is not None
        if halts in wanted and "everything" not in case.effects:
            wanted.remove(halts)
            folders.append(top / case.name)
            write_simulated(case, folders[-1])
        if not wanted:
            break
    assert 2 == len(folders)
    return folders


def flagged(result: CaseResult, method: str) -> list[tuple[float, str, str, str]]:
    return [
        (finding.raised, finding.node, finding.gpu, finding.metric)
        for finding in result.findings[method]
    ]


def cut_short(folder: Path, step: int, target: Path) -> Path:
    """Write the first steps of a case as a case of its own."""
    case = load_case(folder)
    frames = {
        name: replace(
            frame,
            times=frame.times[:step],
            values=frame.values[:, :step],
            gpu_values=None if frame.gpu_values is None else frame.gpu_values[..., :step],
        )
        for name, frame in case.frames.items()
    }
    save_case(replace(case, frames=frames, truth=None), target)
    return target


def results(
    folders: list[Path], methods: tuple[str, ...] = METHODS, **changes: object
) -> list[CaseResult]:
    config = variant(DetectorConfig(), QUICK | changes)
    variants = {method: variant(config, {"method": method}) for method in methods}
    return list(replay_cases(folders, variants, EMPTY))


@pytest.mark.parametrize("which", ["simulated", "recorded"])
def test_what_comes_later_changes_nothing_that_was_found(
    which: str, simulated: list[Path], tmp_path: Path
) -> None:
    if which == "recorded":
        folder, cuts = faulty_case(tmp_path / "whole"), (250, 365, 380, 433)
    else:
        folder, cuts = simulated[0], (465, 640)
    pieces = [cut_short(folder, cut, tmp_path / f"cut-{cut}") for cut in cuts]
    whole, *parts = results([folder, *pieces])
    config = DetectorConfig()
    compared = 0
    for cut, part in zip(cuts, parts, strict=True):
        # The last cycle that sees the end of the cut case, and no more of the whole one.
        lag, cycle = config.prometheus.lag_seconds, config.cycle_seconds
        seen = (cut + lag) // cycle * cycle - lag
        for method in METHODS:
            expected = [finding for finding in flagged(whole, method) if finding[0] < seen]
            assert expected == [finding for finding in flagged(part, method) if finding[0] < seen]
            compared += len(expected)
    assert compared
    assert flagged(whole, "peerwatch")


def test_the_length_of_the_cycle_does_not_change_who_is_found(
    simulated: list[Path], tmp_path: Path
) -> None:
    folders = [simulated[0], faulty_case(tmp_path / "whole")]
    expected = [
        [finding[1:] for finding in flagged(usual, "peerwatch")]
        for usual in results(folders, ("peerwatch",))
    ]
    assert all(expected)
    for cycle in (5, 40):
        actual = [
            [finding[1:] for finding in flagged(other, "peerwatch")]
            for other in results(folders, ("peerwatch",), cycle_seconds=cycle)
        ]
        assert expected == actual


def test_what_is_found_does_not_depend_on_whether_scores_are_shown(tmp_path: Path) -> None:
    case = load_case(faulty_case(tmp_path / "sick"))
    config = variant(DetectorConfig(), QUICK)
    shown = list(cycles(case, config, EMPTY))
    hidden = list(cycles(case, config, EMPTY, shown=False))

    assert shown[-1].findings
    assert [(each.findings, each.deviations) for each in shown] == [
        (each.findings, each.deviations) for each in hidden
    ]
    assert shown[-1].normal_scores["cpu_usage"]
    assert not any(each.normal_scores for each in hidden)


def test_backtest_writes_one_line_per_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faulty_case(tmp_path / "cases" / "sick")
    write_case(tmp_path / "cases" / "well", nodes=8)
    config = tmp_path / "detector.yaml"
    config.write_text(QUICK_YAML)
    output = tmp_path / "findings.jsonl"
    arguments = ["--config", str(config), "--method", "peerwatch"]
    done = main(["backtest", str(tmp_path / "cases"), *arguments, "--output", str(output)])
    captured = capsys.readouterr()
    assert (0, "") == (done, captured.out)
    assert "2/2 cases" in captured.err
    assert 1 == captured.err.count("unheard_of (ratio) in 2")
    sick, well = [json.loads(line) for line in output.read_text().splitlines()]
    assert {"case": "well", "findings": []} == well
    assert "sick" == sick["case"]
    (finding,) = sick["findings"]
    assert {"time_seconds", "node", "gpu", "metric", "method", "score"} == set(finding)
    assert ("node-02", None, "cpu_usage", "peerwatch") == tuple(
        finding[key] for key in ("node", "gpu", "metric", "method")
    )
    assert ONSET < finding["time_seconds"] < 600


def test_backtest_without_an_output_writes_to_the_standard_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_case(tmp_path / "well")
    assert 0 == main(["backtest", str(folder), "-j", "1"])
    assert {"case": "well", "findings": []} == json.loads(capsys.readouterr().out)


def test_processes_change_neither_the_findings_nor_their_order(tmp_path: Path) -> None:
    # The longest comes first: it is not the first to be ready.
    names = ["c", "a", "b", "d"]
    folders = [faulty_case(tmp_path / name) for name in names[:1]]
    folders += [write_case(tmp_path / name, nodes=3, seconds=40) for name in names[1:]]
    variants = {"peerwatch": variant(DetectorConfig(), QUICK)}
    alone = list(replay_cases(folders, variants, EMPTY, 1))
    shared = list(replay_cases(folders, variants, EMPTY, 2))
    assert names == [shared_result.case for shared_result in shared]
    assert alone == shared
    assert flagged(alone[0], "peerwatch")


class Deadly:
    """Ends the process that it is sent to."""

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (1,)


def test_a_killed_process_is_told(tmp_path: Path) -> None:
    folders = [write_case(tmp_path / name, seconds=20) for name in ("a", "b")]
    with pytest.raises(CaseError, match=r"was killed.*give fewer with --processes"):
        list(replay_cases(folders, {"peerwatch": DetectorConfig()}, Deadly(), 2))


ENDLESS = """
import sys
from pathlib import Path
from peerwatch_detector.backtest.replay import cycles
from peerwatch_detector.backtest.run import replay_cases
from peerwatch_detector.config import DetectorConfig

class Endless:
    def __reduce__(self):
        return exec, ("import os, time; os.write(1, b'begun\\\\n'); time.sleep(600)",)

try:
    list(replay_cases([Path("a"), Path("b")], {"": DetectorConfig()}, Endless(), 2))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize(
    ("number", "whom", "code"),
    [(signal.SIGINT, "all", 130), (signal.SIGTERM, "parent", -15), (signal.SIGKILL, "parent", -9)],
)
def test_processes_end_at_once_and_silently_with_their_parent(
    number: signal.Signals, whom: str, code: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        begun = [process.stdout.readline() for _ in range(2)]
        # A terminal sends Ctrl-C to all.
        (os.killpg if whom == "all" else os.kill)(process.pid, number)
        # To the end of the last one that holds the pipe.
        _, said = process.communicate(timeout=300)

    assert (["begun\n"] * 2, code) == (begun, process.returncode)
    # multiprocessing itself may tell of what a killed process left.
    assert whom == "parent" or "" == said
