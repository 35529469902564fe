"""``peerwatch-detector timeline``: one trace of all ranks of a job."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from peerwatch_common.errors import ConfigError
from peerwatch_common.progress import Progress
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.diagnosis.timeline.chrome import ChromeTrace
from peerwatch_detector.diagnosis.timeline.clock_marks import ClockMarks
from peerwatch_detector.diagnosis.timeline.lines import (
    EndOfSpans,
    RankFacts,
    RankSpan,
    parse_lines,
)
from peerwatch_detector.errors import OutputError, ReadError, TraceError
from peerwatch_detector.reading.reader import PrometheusReader, exporter_access, exporters_of_job
from peerwatch_detector.reading.span_reader import SpanReading, read_span_lines

# Chosen: some tens of steps, in a file that a viewer of traces still opens.
_DEFAULT_SECONDS = 60.0
# Exporters asked at a time: their answers are in memory until they are written, in order. Chosen: a
# job of a hundred nodes is asked in a dozen turns.
_AT_A_TIME = 8
# Lines about exporters that did not answer. Chosen: the rest say the same, and a terminal has 24.
_MOST_TOLD = 10


@dataclass(slots=True)
class _Told:
    """What the answers said beside the spans."""

    ranks: dict[int, str] = field(default_factory=dict)
    uncompared: list[int] = field(default_factory=list)
    by_marks: list[int] = field(default_factory=list)
    clock_error: float = 0.0
    dropped: int = 0
    truncated: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Placing:
    """What places spans whose clocks were not compared: they wait until all marks are known."""

    marks: ClockMarks = field(default_factory=ClockMarks)
    waiting: dict[int, list[RankSpan]] = field(default_factory=dict)


def run_timeline(options: argparse.Namespace, config: DetectorConfig) -> int:
    """Read the spans of a job from its exporters and write them as a trace.

    Returns
    -------
    int
        0; 1 if some exporter could not be read, and the trace lacks its ranks.

    Raises
    ------
    ConfigError
        If the range is empty or a password cannot be read.
    OutputError
        If the trace cannot be written.
    ReadError
        If Prometheus cannot be read.
    TraceError
        If nobody has a span of the job in this range.
    """
    end = time.time() if options.end is None else options.end
    start = end - _DEFAULT_SECONDS if options.start is None else options.start
    if not start < end:
        raise ConfigError([f"--start {start:.3f} must be before --end {end:.3f}."])
    how = exporter_access(config)
    exporters = _exporters(options, config, start, end)
    query = {"job_id": options.job_id, "start": f"{start:.6f}", "end": f"{end:.6f}"}
    with _opened(options.output) as out:
        trace, told = ChromeTrace(out, start), _Told()
        failed = _merge(trace, told, exporters, query, how)
        trace.close(_facts(options.job_id, start, end, told))
        if not trace.spans:
            raise TraceError(_nothing(options.job_id, exporters, failed, told))
    _summarise(trace, told, failed, options.output)
    return 1 if failed else 0


def _exporters(
    options: argparse.Namespace, config: DetectorConfig, start: float, end: float
) -> dict[str, str]:
    """Return the address of each exporter, and the node it tells of where that is known."""
    if options.exporter:
        return dict.fromkeys(options.exporter, "")
    label = config.exporters.address_label
    with PrometheusReader(config.prometheus) as reader:
        found = exporters_of_job(reader, options.job_id, label, start, end)
    if not found:
        raise TraceError(
            f"{config.prometheus.shown_url} knows no rank_info of job {options.job_id!r} between "
            f"{start:.0f} and {end:.0f} with the label {label!r}; check --job-id, --start and "
            "--end and exporters.address_label, or give the exporters with --exporter."
        )
    return {f"{config.exporters.scheme}://{address}": node for address, node in found.items()}


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """Write a file of this name, which appears once it is whole."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("w") as file:
            yield file
        temporary.replace(path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def _merge(
    trace: ChromeTrace,
    told: _Told,
    exporters: dict[str, str],
    query: dict[str, str],
    how: SpanReading,
) -> list[str]:
    """Write the spans of all exporters; return why some could not be read."""
    failed = []
    placing = _Placing()
    urls = list(exporters)
    with (
        Progress(sys.stderr, len(urls), "node") as progress,
        ThreadPoolExecutor(_AT_A_TIME) as pool,
    ):
        for first in range(0, len(urls), _AT_A_TIME):
            part = urls[first : first + _AT_A_TIME]
            answers = [pool.submit(_lines_of, url, query, how) for url in part]
            for url, answer in zip(part, answers, strict=True):
                try:
                    _add(trace, told, placing, answer.result(), url, exporters[url])
                except (ReadError, TraceError) as error:
                    failed.append(str(error))
                progress.advance()
    _place(trace, told, placing)
    return failed


def _lines_of(url: str, query: dict[str, str], how: SpanReading) -> list[bytes]:
    return [*read_span_lines(url, query, how)]


def _place(trace: ChromeTrace, told: _Told, placing: _Placing) -> None:
    """Write the spans of ranks whose clocks were not compared, by marks where there are some."""
    for rank, spans in placing.waiting.items():
        shift = placing.marks.shift(spans)
        if shift is None:
            told.uncompared.append(rank)
        else:
            told.by_marks.append(rank)
            told.clock_error = max(told.clock_error, shift.error)
        for span in spans:
            placed = span if shift is None else replace(span, start=shift.corrected(span.start))
            trace.span(rank, placed)


def _add(
    trace: ChromeTrace,
    told: _Told,
    placing: _Placing,
    lines: Sequence[bytes],
    url: str,
    node: str,
) -> None:
    rank = -1
    skipped = False
    for line in parse_lines(lines, url):
        match line:
            case RankFacts():
                rank = line.rank
                skipped = rank in told.ranks
                if skipped:
                    told.problems.append(
                        f"{url}: has rank {rank}, as {told.ranks[rank]}; the second is left out."
                    )
                    continue
                told.ranks[rank] = url
                told.dropped += line.dropped
                trace.rank(rank, f"rank {rank}" + (f" ({node})" if node else ""))
                if line.clock_error is None:
                    placing.waiting[rank] = []
                else:
                    told.clock_error = max(told.clock_error, line.clock_error)
            case RankSpan():
                if skipped:
                    continue
                if rank in placing.waiting:
                    placing.waiting[rank].append(line)
                else:
                    placing.marks.add(line)
                    trace.span(rank, line)
            case EndOfSpans():
                told.problems.extend(f"{url}: {problem}" for problem in line.problems)
                if line.truncated:
                    told.truncated.append(url)


def _facts(job_id: str, start: float, end: float, told: _Told) -> dict[str, object]:
    return {
        "job_id": job_id,
        "start_unix_seconds": start,
        "end_unix_seconds": end,
        "ranks": len(told.ranks),
        "clock_error_seconds": told.clock_error,
        "ranks_with_clocks_by_collectives": sorted(told.by_marks),
        "ranks_with_uncompared_clocks": sorted(told.uncompared),
        "spans_dropped": told.dropped,
    }


def _nothing(job_id: str, exporters: dict[str, str], failed: list[str], told: _Told) -> str:
    whom = f"{len(exporters)} exporters" if len(exporters) > 1 else next(iter(exporters))
    why = [*failed, *told.problems][:_MOST_TOLD]
    return (
        f"{whom} had no spans of job {job_id!r} in this range. Spans are kept for about ten "
        "minutes, where the job runs with PEERWATCH_SPANS=1 (docs/spans.md)."
        + "".join(f" {reason}" for reason in why)
    )


def _summarise(trace: ChromeTrace, told: _Told, failed: list[str], path: Path) -> None:
    lines = [
        f"{path}: {trace.spans:,} spans of {len(told.ranks):,} ranks, {trace.arrows:,} messages. "
        "Open it in https://ui.perfetto.dev."
    ]
    if told.uncompared and len(told.ranks) > 1:
        lines.append(
            f"The clocks of {len(told.uncompared)} ranks were not compared with rank 0's: their "
            "spans may be shifted against the others'."
        )
    if told.truncated:
        lines.append(
            f"{len(told.truncated)} exporters had more spans than an answer may have: ask for a "
            "shorter range."
        )
    lines += [*failed, *told.problems][:_MOST_TOLD]
    sys.stderr.write("".join(f"{line}\n" for line in lines))
