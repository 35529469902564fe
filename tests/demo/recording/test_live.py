"""What the live detector said is kept line by line, and evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peerwatch_demo.recording.live import (
    Line,
    Listener,
    LiveFinding,
    LiveLog,
    RecordError,
    p90,
    table,
)


def heard(node: str, seen: float = 120.0, metric: str = "cpu_usage") -> LiveFinding:
    return LiveFinding(node, metric, "critical", seen - 1, seen)


def fault(*findings: LiveFinding, number: int = 1, **more: Any) -> Line:
    case = f"slow_nic-{number:02d}"
    return Line(
        "fault", number, "slow_nic", "node-3", case, 40.0, 100.0, 130.0, findings, **more
    )  # fmt: skip


def healthy(*findings: LiveFinding) -> Line:
    return Line("healthy", 11, "healthy", "", "healthy-11", 0.0, 0.0, 1800.0, findings)


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        ("right", fault(heard("node-3"))),
        ("missed", fault()),
        ("wrong", fault(heard("node-4"))),
        ("wrong", fault(heard("node-3"), heard("node-4"))),
        ("wrong", fault(heard("node-3"), before=(heard("node-3", 99.0),))),
        ("right", healthy()),
        ("wrong", healthy(heard("node-3"))),
    ],
    ids=["right", "missed", "another", "one-too-many", "too-early", "healthy", "false"],
)
def test_only_the_faulty_node_and_only_then_is_right(outcome: str, line: Line) -> None:
    assert outcome == line.outcome


def test_the_delay_runs_to_the_first_finding_that_names_the_node() -> None:
    line = fault(heard("node-4", 110.0), heard("node-3", 122.5), heard("node-3", 125.0))

    assert 22.5 == line.delay_seconds
    assert fault(heard("node-4")).delay_seconds is None


def test_lines_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    lines = [fault(heard("node-3"), load="1.00 0.50 0.25 2/90", note="x"), healthy()]
    log = LiveLog(tmp_path / "live.jsonl")
    for line in lines:
        log.add(line)

    again = LiveLog(tmp_path / "live.jsonl")
    again.load()

    assert lines == log.lines == again.lines


def test_a_line_that_broke_off_is_cut_away_and_the_next_stands_alone(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    LiveLog(path).add(fault())
    with path.open("a") as file:
        file.write('{"kind": "fau')

    log = LiveLog(path)
    log.load()
    log.add(healthy())
    log.load()

    assert [fault(), healthy()] == log.lines


def test_a_file_of_something_else_is_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    LiveLog(path).add(fault())
    with path.open("a") as file:
        file.write('{"case": "x"}\n')

    with pytest.raises(RecordError, match=r"live\.jsonl, line 2: is no line of a recording"):
        LiveLog(path).load()


def test_no_file_is_an_empty_log(tmp_path: Path) -> None:
    log = LiveLog(tmp_path / "live.jsonl")
    log.load()

    assert [] == log.lines


def test_what_a_round_has_is_not_done_again() -> None:
    stray = Line("stray", 2, "memory_hog", "", "", 0.0, 0.0, 1.0, (heard("node-1"),))
    log = LiveLog(Path("unused"), [fault(number=1), fault(number=2), stray])

    assert {"slow_nic"} == log.done(2)
    assert set() == log.done(3)


def answer(*findings: tuple[str, str, float]) -> dict[str, Any]:
    return {
        "jobs": [
            {
                "findings": [
                    {"node": node, "metric": metric, "severity": "critical", "raised": raised}
                    for node, metric, raised in findings
                ]
            }
        ]
    }


def test_a_finding_is_told_once_and_again_when_it_is_raised_again() -> None:
    answers = [
        answer(),
        answer(("node-3", "cpu_usage", 10.0)),
        None,
        answer(("node-3", "cpu_usage", 10.0)),
        answer(),
        answer(("node-3", "cpu_usage", 90.0)),
    ]
    coming = iter(answers)
    listener = Listener("http://detector", lambda: 91.0, lambda _: next(coming))

    polled, standing = [], []
    for _ in answers:
        polled.append([finding.raised for finding in listener.poll()])
        standing.append(sorted(listener.standing))

    assert [[], [10.0], [], [], [], [90.0]] == polled
    # An answer that does not come leaves what stood.
    assert [[], ["node-3"], ["node-3"], ["node-3"], [], ["node-3"]] == standing


def test_the_table_has_a_row_for_each_fault_and_counts_the_strays() -> None:
    stray = Line("stray", 1, "slow_nic", "", "", 0.0, 0.0, 1.0, (heard("node-1"), heard("node-2")))
    lines = [fault(heard("node-3", 100.0 + delay)) for delay in (10, 20, 30)]

    rows = table([*lines, fault(), fault(heard("node-1")), healthy(), stray]).splitlines()

    assert "| slow_nic | 5 | 3 | 1 | 1 | 20 s | 28 s |" == rows[2]
    assert "| healthy | 1 | 1 | 0 | 0 |  |  |" == rows[3]
    assert rows[-1].endswith(": 2")


@pytest.mark.parametrize(
    ("values", "expected"), [([7.0], 7.0), ([0.0, 10.0], 9.0), (list(range(11, 0, -1)), 10.0)]
)
def test_the_percentile_lies_between_the_nearest_values(
    values: list[float], expected: float
) -> None:
    assert expected == pytest.approx(p90(values))
