"""Spans on a GPU: as long as by a job's own events, what they cost, and a kernel that hangs."""

from __future__ import annotations

import json
import statistics
import urllib.request
from typing import TYPE_CHECKING

from bench.paired import difference
from gpu.job import JOB_ID, need_torch, training
from gpu.part import Result, until

if TYPE_CHECKING:
    from gpu.job import Job
    from gpu.part import Node

_PENDING = "span_gpu_pending_seconds"
# An event is recorded just outside of the job's own: a few microseconds on each side.
_TOLERANCE, _TOLERANCE_SECONDS = 0.02, 50e-6
_STEP_SECONDS = 0.050


def run(node: Node) -> Result:
    """Run a job of one rank with spans."""
    need_torch(node)
    result = Result("Spans of a job on the GPU")
    with training("spans.py") as job:
        _compare(job, result)
        _cost(job, result)
        if not job.ranks[0].said("graph"):
            result.failures.append("A graph that was captured while spans are kept computes wrong.")
        result.lines += ["", "A CUDA graph captured and replayed meanwhile computes the same."]
        _hang(job, result)
    return result


def _compare(job: Job, result: Result) -> None:
    measured = job.ranks[0].said("compared")
    spans = [span for span in _spans(job) if span[1] < measured["until"]]
    rows = []
    for name in ("forward", "backward"):
        own = measured[name]
        ours = [span[2] for span in spans if span[0] == name][-len(own) :]
        on_gpu = sum(len(span) > 7 and span[7] is True for span in spans if span[0] == name)
        rows.append(
            (
                name,
                len(ours),
                f"{statistics.median(ours) * 1e3:.3f}",
                f"{statistics.median(own) * 1e3:.3f}",
                f"{max(abs(a - b) for a, b in zip(ours, own, strict=True)) * 1e6:.0f}",
            )
        )
        if on_gpu < len(own):
            result.failures.append(f"Of the {name} spans the GPU measured {on_gpu}: {spans[:9]}.")
        # Of single ones the host may have paused between the job's event and the span's.
        span, by_job = statistics.median(ours), statistics.median(own)
        if abs(span - by_job) > _TOLERANCE * by_job + _TOLERANCE_SECONDS:
            result.failures.append(f"{name} is not as long as by the job's own events: {rows[-1]}.")
    result.lines.append("Milliseconds by spans and by events of the job itself, around the same.")
    result.table(("segment", "steps", "span", "own events", "largest difference, us"), rows)


def _spans(job: Job) -> list[list[object]]:
    url = job.exporter.url.replace("/metrics", f"/spans?job_id={JOB_ID}")
    with urllib.request.urlopen(url, timeout=30) as answer:
        return [each for line in answer if isinstance(each := json.loads(line), list)]


def _cost(job: Job, result: Result) -> None:
    steps = job.ranks[0].said("cost")
    rows = []
    for index, what in enumerate(("wall time of a step", "CPU time of the process in a step")):
        without, named = ([step[index] for step in steps[which]] for which in ("without", "with"))
        more = difference(without, named)
        rows.append(
            (
                what,
                f"{statistics.median(without) * 1e3:.2f}",
                more.text("us", 1e6),
                f"{more.median / _STEP_SECONDS:.2%}",
            )
        )
    result.lines += ["", "What 196 segments add to a step of as many products of matrices:"]
    result.table(("what", "without, ms", "more with (95 % interval)", "of 50 ms"), rows)


def _hang(job: Job, result: Result) -> None:
    rank = job.ranks[0]
    rank.tell("hang")
    rank.said("hanging")
    seconds = until(lambda: job.exporter.value(_PENDING, segment="hang"), f"a page with {_PENDING}")
    longest = rank.said("hung")
    until(lambda: job.exporter.value(_PENDING) is None, f"a page without {_PENDING}")
    result.lines += [
        "",
        f"While a kernel of {longest:.1f} s ran, `{_PENDING}` was first {seconds:.1f}; it was gone "
        "after it.",
    ]
    if not 4 <= seconds <= longest + 3:
        result.failures.append(f"{_PENDING} was {seconds:.1f} of a kernel of {longest:.1f} s.")
