"""Spans of a job, as a Chrome trace or JSON lines, are replayed like a table."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from peerwatch_detector.__main__ import main
from peerwatch_detector.diagnosis.stragglers import json_events
from peerwatch_detector.diagnosis.stragglers.causes import Conclusion, conclude
from peerwatch_detector.diagnosis.stragglers.chain import chain_schedule
from peerwatch_detector.diagnosis.stragglers.layout import arrange
from peerwatch_detector.diagnosis.stragglers.read import read_trace
from peerwatch_detector.diagnosis.stragglers.whatif import WhatIf, analyse
from peerwatch_detector.errors import TraceError


@dataclass
class DataParallel:
    """Ranks that compute, exchange gradients in the backward pass and once more after it.

    ``own`` says how many seconds a rank needs for the backward pass up to its first exchange; two
    groups of ranks exchange first, then all.
    """

    own: Callable[[int, int], float]
    ranks: int = 4
    steps: int = 20

    def spans(self) -> list[dict[str, Any]]:
        found = []
        begin = [0.001 * rank for rank in range(self.ranks)]
        for step in range(self.steps):
            compute = [time + 0.3 for time in begin]
            first = [time + self.own(step, rank) for rank, time in enumerate(compute)]
            halves = [max(first[0::2]), max(first[1::2])]
            joined = [halves[rank % 2] for rank in range(self.ranks)]
            second = [time + 0.02 + 0.1 for time in joined]
            ended = max(second) + 0.03
            for rank in range(self.ranks):
                end = ended + 0.05
                segments: list[tuple[str, float, float, dict[str, str]]] = [
                    ("step", begin[rank], end, {}),
                    ("data", begin[rank], begin[rank] + 0.1, {}),
                    ("forward", begin[rank] + 0.1, compute[rank], {}),
                    ("backward", compute[rank], second[rank], {}),
                    ("collective", first[rank], joined[rank] + 0.02, {"group": f"h{rank % 2}"}),
                    ("collective", second[rank], ended, {"group": "all"}),
                    ("optimizer", ended, ended + 0.04, {}),
                    ("tokenizer", ended + 0.041, ended + 0.045, {}),
                ]
                where = {"rank": rank, "step": step, "node": f"node-{rank}"}
                found += [
                    {**where, "segment": name, "start": start, "duration": stop - start, **more}
                    for name, start, stop, more in segments
                ]
                begin[rank] = end
        return found

    def seconds(self) -> float:
        return 0.3 + max(self.own(0, rank) for rank in range(self.ranks)) + 0.02 + 0.1 + 0.03 + 0.05


def lines(spans: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(span) + "\n" for span in spans)


def chrome(spans: list[dict[str, Any]]) -> dict[str, Any]:
    events: list[dict[str, Any]] = [
        *(
            {
                "ph": "M",
                "name": "process_name",
                "pid": rank,
                "args": {"name": f"rank {rank} (node-{rank})"},
            }
            for rank in range(4)
        ),
        {"ph": "s", "id": 1, "name": "send", "pid": 0, "ts": 1},
    ]
    for span in spans:
        args = {name: span[name] for name in ("step", "group") if name in span}
        # A collective knows its sequence number rather than its step.
        if span["segment"] == "collective":
            del args["step"]
        times = {"ts": span["start"] * 1e6, "dur": span["duration"] * 1e6}
        events.append(
            {
                "ph": "X",
                "name": span["segment"],
                "pid": span["rank"],
                "tid": 1,
                **times,
                "args": args,
            }
        )
    return {"displayTimeUnit": "ms", "otherData": {"[": "{"}, "traceEvents": events}


def exported(spans: list[dict[str, Any]]) -> str:
    """The answers of the exporters of two nodes, one after the other."""
    found = []
    for ranks in ((0, 1), (2, 3)):
        for rank in ranks:
            found.append({"rank": rank, "job_id": "4711", "world_size": 4, "clock": None})
            own = [span for span in spans if span["rank"] == rank]
            numbers = {"half": 0, "all": 0}
            for span in sorted(own, key=lambda span: span["start"] + span["duration"]):
                times = [span["segment"], span["start"], span["duration"]]
                if "group" not in span:
                    found.append([*times, span["step"]])
                    continue
                kind = "all" if span["group"] == "all" else "half"
                found.append([*times, numbers[kind], span["group"], "all_reduce", None])
                numbers[kind] += 1
        found.append({"spans": 1, "truncated": ranks == (0, 1), "problems": []})
    return "".join(json.dumps(line) + "\n" for line in found)


def evaluated(path: Path) -> tuple[WhatIf, Conclusion]:
    layout = arrange(read_trace(path, None))
    measures = analyse(layout, chain_schedule(layout))
    return measures, conclude(layout, measures)


SLOW = DataParallel(lambda _step, rank: 0.9 if rank == 2 else 0.4)


@pytest.mark.parametrize("form", ["lines", "chrome", "array", "packed", "exported"])
def test_a_slow_rank_is_named_with_its_node(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Objects across the boundaries of what is read at a time.
    monkeypatch.setattr(json_events, "_CHUNK", 1000)
    path = tmp_path / "spans"
    whole = chrome(SLOW.spans())
    content = {
        "lines": lines(SLOW.spans()),
        "chrome": json.dumps(whole, indent=1),
        "array": json.dumps(whole["traceEvents"])[:-1],
        "exported": exported(SLOW.spans()),
        "packed": json.dumps(whole),
    }[form].encode()
    path.write_bytes(gzip.compress(content) if form == "packed" else content)
    measures, conclusion = evaluated(path)
    assert pytest.approx(SLOW.seconds()) == measures.replayed_seconds
    # Half a second on one of four ranks.
    assert pytest.approx(SLOW.seconds() - 0.375, abs=0.001) == measures.ideal_seconds
    assert ["machine"] == [cause.name for cause in conclusion.causes]
    node = "" if form == "exported" else "node-2"
    assert [(2, node)] == [(worker.rank, worker.node) for worker in conclusion.workers]
    # Computing in a step: 0.85 s of a healthy rank, of which the optimizer and what is not named.
    assert pytest.approx((0.85 + 0.5) / 0.85, abs=0.02) == conclusion.workers[0].ratio


def test_even_ranks_and_uneven_steps_name_nobody(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    path.write_text(lines(DataParallel(lambda step, rank: 0.4 + 0.3 * ((step + rank) % 4)).spans()))
    measures, conclusion = evaluated(path)
    assert measures.slowdown > 1.1
    assert () == conclusion.workers


def test_the_command_says_what_it_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spans = SLOW.spans()
    # One rank died in the last step, and something ran before the first.
    spans = [span for span in spans if not (span["rank"] == 1 and span["step"] == 19)]
    early = {"rank": 0, "segment": "gc", "start": -5.0, "duration": 0.1}
    path = tmp_path / "spans.jsonl"
    path.write_text(lines([early, *spans]))
    assert 0 == main(["stragglers", str(path)])
    text = capsys.readouterr().out
    assert "Names rank 2 on node node-2" in text
    assert "1 incomplete steps were left out" in text
    assert "79 spans of segment 'tokenizer' were left out" in text
    assert "1 spans were left out that belong to no step" in text


@pytest.mark.parametrize(
    "form", [lines, lambda spans: json.dumps(chrome(spans))], ids=["lines", "chrome"]
)
def test_a_node_whose_name_no_terminal_shows_is_named_all_the_same(
    form: Callable[[list[dict[str, Any]]], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spans"
    # Half of a character, and what makes a terminal clear itself.
    path.write_text(form(SLOW.spans()).replace("node-2", r"n\ud800\u001b[2J"))
    assert 0 == main(["stragglers", str(path)])
    assert r"Names rank 2 on node n\ud800\x1b[2J" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "has no spans of a training step"),
        ('{"a": 1}\n', "has no spans of a training step"),
        ('{"segment": 1}\n', "has no name of a segment"),
        ('{"rank": 0}\n["data", 1.0, 2.0]', "event 2: has 3 values; a span has four or more"),
        ('{"rank": 0}\n["data", 1.0, null, 4]', "event 2: duration is missing; it must be"),
        ('["data", 1.0, 2.0, 4]', "event 1 is no object but"),
        ("[]", "has no spans of a training step"),
        ('{"traceEvents": []}', "has no spans of a training step"),
        ('{\n"events": []\n}', 'is JSON without "traceEvents"'),
        ("[1, 2]", "event 1 is no object but '1'"),
        ('[{"ph": "X", "name": "for', "is no JSON after 0 events: "),
        ("[" + "[" * 100_000, "is no JSON after 0 events: too deep"),
        (f'[{{"pid": {"1" * 5000}}}]', "is no JSON after 0 events: a number is too long"),
        (f'{{"rank": {"1" * 5000}}}', 'is JSON without "traceEvents"'),
        ('[{"ph": "X", "name": "load", "pid": 1, "ts": 1, "dur": 1}]', "only load"),
        ('[{"ph": "X", "name": "data", "pid": -1, "ts": 1, "dur": 1}]', "pid is -1; it must be"),
        ('[{"ph": "X", "name": "data", "pid": 1, "ts": NaN, "dur": 1}]', "ts is nan; it must be"),
        ('[{"ph": "X", "name": "data", "pid": 1, "ts": 1, "dur": -1}]', "duration is -1e-06 s"),
        ('[{"ph": "X", "name": "data", "pid": 1, "ts": 1}]', "dur is missing"),
        ('[{"ph": "X", "name": "data", "pid": 1, "ts": 1, "dur": 1}]', "no span says its step"),
        (f'[{{"ph": "X", "name": "data", "pid": 1, "ts": 1{"0" * 400}, "dur": 1}}]', "ts is 10000"),
    ],
)
def test_what_is_no_trace_of_spans_is_refused(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "spans.json"
    path.write_text(content)
    with pytest.raises(TraceError) as caught:
        evaluated(path)
    assert message in str(caught.value)


def test_ranks_that_do_different_things_are_refused(tmp_path: Path) -> None:
    spans = [
        span
        for span in DataParallel(lambda *_: 0.4, ranks=6).spans()
        if not (span["segment"] == "collective" and span["rank"] % 3 == 1)
        and not (span.get("group") == "all" and span["rank"] % 3 == 2)
    ]
    path = tmp_path / "spans.jsonl"
    path.write_text(lines(spans))
    with pytest.raises(TraceError, match="different numbers of collectives in a step"):
        evaluated(path)


def replicated(slow: int | None, pause: int | None = None) -> list[dict[str, Any]]:
    """Ranks that wait for one another in the backward pass, without a span for it."""
    spans: list[dict[str, Any]] = []
    begin = 0.0
    for step in range(20):
        forward = [0.9 if rank == slow else 0.4 for rank in range(4)]
        end = begin + max(forward) + 0.3 + (60.0 if step == pause else 0.0)
        for rank, seconds in enumerate(forward):
            where = {"rank": rank, "step": step}
            spans += [
                {**where, "segment": name, "start": start, "duration": stop - start}
                for name, start, stop in (
                    ("step", begin, end + 0.1),
                    ("forward", begin, begin + seconds),
                    ("backward", begin + seconds, end + 0.001 * rank),
                    # Something runs within the waiting.
                    ("gc", end - 0.02, end - 0.01),
                    ("optimizer", end + 0.01, end + 0.1),
                )
            ]
        begin = end + 0.1
    return spans


def test_waiting_within_backward_passes_is_none_of_their_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spans.jsonl"
    path.write_text(lines(replicated(slow=1)))
    measures, conclusion = evaluated(path)
    assert pytest.approx(1.3, abs=0.01) == measures.replayed_seconds
    assert pytest.approx(0.925, abs=0.01) == measures.ideal_seconds
    assert [1] == [worker.rank for worker in conclusion.workers]
    assert 0 == main(["stragglers", str(path)])
    assert "backward passes end together" in capsys.readouterr().out
    path.write_text(lines(replicated(slow=None)))
    assert "no_straggler" == evaluated(path)[1].causes[0].name


def test_a_step_that_paused_does_not_decide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spans.jsonl"
    path.write_text(lines(replicated(slow=3, pause=7)))
    assert 0 == main(["stragglers", str(path)])
    text = capsys.readouterr().out
    assert "1 steps were left out that took more than 5 times the median: 7" in text
    assert "Names rank 3:" in text


def test_collectives_that_overlap_take_the_time_that_they_took(tmp_path: Path) -> None:
    spans = []
    for step in range(20):
        for rank in range(3):
            # Both are launched while the rank computes on; the second begins before the first ends.
            lengths = [
                ("step", 0.0, 1.0),
                ("backward", 0.0, 0.7),
                ("collective", 0.3, 0.6),
                ("collective", 0.5, 0.9),
                ("optimizer", 0.8, 1.0),
            ]
            spans += [
                {"rank": rank, "step": step, "segment": name, "start": step + a, "duration": b - a}
                for name, a, b in lengths
            ]
    path = tmp_path / "spans.jsonl"
    path.write_text(lines(spans))
    measures, _ = evaluated(path)
    assert pytest.approx(1.0) == measures.replayed_seconds
