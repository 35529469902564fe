"""One trace of 64 ranks x 100 steps: from exporters' answers, beside merging traces of a profiler.

Both have the same spans, 40 a step. The plain way is what people do with the traces that
``torch.profiler`` writes, a file of each rank: load them, number the processes, write one file.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.measurement import Measurement, alone, cpu_in_turns
from bench.span_servers import serving_spans
from peerwatch_detector.__main__ import main

NODES, RANKS_OF_EACH, STEPS, COLLECTIVES = 8, 8, 100, 35
START = 1_760_000_000.0
_PARTS = ("step", "data", "forward", "backward", "optimizer")


def spans_of(rank: int) -> list[list[object]]:
    """Return the spans of a rank, as its exporter has them."""
    found: list[list[object]] = []
    for step in range(STEPS):
        begin = START + 0.5 * step + rank * 1e-5
        found += [[name, begin + k * 0.1, 0.0987654, step] for k, name in enumerate(_PARTS)]
        found += [
            [
                *("collective", begin + 0.2 + k * 0.005, 0.0034567, step * COLLECTIVES + k),
                *("0", "all_reduce", None),
            ]
            for k in range(COLLECTIVES)
        ]
    return found


def answer_of(node: int) -> bytes:
    """Return what an exporter answers: the spans of the ranks of its node."""
    lines: list[object] = []
    for rank in range(node * RANKS_OF_EACH, (node + 1) * RANKS_OF_EACH):
        facts: dict[str, object] = {"rank": rank, "job_id": "j", "world_size": 64, "pid": rank + 1}
        facts |= {"updated": START, "dropped": 0, "gpu_pending": None}
        facts["clock"] = {"source": "rank_0", "offset": 0.0, "error": 0.0}
        lines += [facts, *spans_of(rank)]
    lines.append({"spans": len(lines), "truncated": False, "problems": []})
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


def trace_of(rank: int) -> dict[str, object]:
    """Return the same spans as a profiler's trace."""
    events = [
        {
            "name": span[5] if len(span) > 4 else span[0],
            "cat": span[0],
            "ph": "X",
            "pid": 0,
            "tid": 0,
            "ts": round((float(str(span[1])) - START) * 1e6, 3),
            "dur": 3456.7,
            "args": {"seq": span[3]},
        }
        for span in spans_of(rank)
    ]
    return {"displayTimeUnit": "ms", "traceEvents": events}


def merged(files: list[Path], output: Path) -> None:
    """Merge the traces of ranks as people do it."""
    events = []
    for rank, file in enumerate(files):
        with file.open() as text:
            for event in json.load(text)["traceEvents"]:
                event["pid"] = rank
                events.append(event)
    with output.open("w") as text:
        json.dump({"displayTimeUnit": "ms", "traceEvents": events}, text)


def measurements(_options: argparse.Namespace) -> Iterator[Measurement]:
    """Yield the CPU time; ours has the HTTP requests and checks every span."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as servers:
        directory = Path(name)
        answers = [answer_of(node) for node in range(NODES)]
        urls = [servers.enter_context(serving_spans(answer)) for answer in answers]
        files = [directory / f"rank-{rank}.json" for rank in range(NODES * RANKS_OF_EACH)]
        for rank, file in enumerate(files):
            file.write_text(json.dumps(trace_of(rank)))
        asked = ["timeline", str(directory / "ours.json"), "--job-id", "j", "--log-level", "error"]
        asked += [f"--start={START}", f"--end={START + 60}", *(f"--exporter={u}" for u in urls)]

        def ours() -> None:
            if main(asked):
                raise RuntimeError("the timeline lacks ranks")

        def floor() -> None:
            for answer in answers:
                for line in answer.splitlines():
                    json.loads(line)

        times = cpu_in_turns((ours, lambda: merged(files, directory / "plain.json"), floor), 3)
        spans = NODES * RANKS_OF_EACH * STEPS * (len(_PARTS) + COLLECTIVES)
        written = json.loads((directory / "ours.json").read_text())["traceEvents"]
        if sum(event["ph"] == "X" for event in written) != spans:
            raise RuntimeError("the trace lacks spans")
    yield Measurement(
        f"detector, timeline of 64 ranks x 100 steps, {spans:,} spans",
        "s CPU",
        *(times[0], times[1], "json, 64 profiler traces merged", times[2], "json.loads alone"),
    )


if __name__ == "__main__":
    alone(measurements)
