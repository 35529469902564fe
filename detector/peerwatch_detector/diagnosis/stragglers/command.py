"""What slows a job, from a trace of its operations: ``peerwatch-detector stragglers``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from peerwatch_common.progress import Progress
from peerwatch_detector.diagnosis.stragglers.causes import conclude
from peerwatch_detector.diagnosis.stragglers.chain import chain_schedule
from peerwatch_detector.diagnosis.stragglers.layout import Layout, arrange
from peerwatch_detector.diagnosis.stragglers.operations import Trace
from peerwatch_detector.diagnosis.stragglers.pipeline import pipeline_schedule
from peerwatch_detector.diagnosis.stragglers.read import read_trace
from peerwatch_detector.diagnosis.stragglers.report import as_json, as_text
from peerwatch_detector.diagnosis.stragglers.whatif import WhatIf, analyse, replays
from peerwatch_detector.errors import TraceError


def run_stragglers(options: argparse.Namespace) -> int:
    """Analyse a trace and write what it says.

    Raises
    ------
    ConfigError
        If the trace is parquet and pyarrow is not installed.
    TraceError
        If it is no trace, or broken.
    """
    trace = _read(options.trace, options.steps)
    try:
        layout = arrange(trace)
        notices = [*trace.notices, *_left_out(layout)]
        del trace
        measures = _analyse(layout)
    except TraceError as error:
        raise TraceError(f"{options.trace}: {error}") from error
    conclusion = conclude(layout, measures)
    if options.json:
        whole = as_json(layout, measures, conclusion, notices)
        sys.stdout.write(json.dumps(whole, indent=1, allow_nan=False) + "\n")
    else:
        sys.stdout.write(as_text(layout, measures, conclusion, notices))
    return 0


def _read(path: Path, steps: tuple[int, int] | None) -> Trace:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}.") from error
    if not path.is_file():
        raise TraceError(f"{path}: is no file; give the file of a trace.")
    with Progress(sys.stderr, size, "byte") as progress:
        progress.describe(f"read {path.name}")
        return read_trace(path, steps, progress.advance)


def _analyse(layout: Layout) -> WhatIf:
    schedule = chain_schedule(layout) if layout.chained else pipeline_schedule(layout)
    with Progress(sys.stderr, replays(layout, schedule), "replay") as progress:
        progress.describe("replay")
        return analyse(layout, schedule, progress.advance)


def _left_out(layout: Layout) -> list[str]:
    """Return what of a trace is not analysed."""
    notices = []
    if layout.dropped_steps:
        notices.append(
            f"{layout.dropped_steps:,} incomplete steps were left out, which lack operations that "
            "the others have"
        )
    if layout.dropped_operations:
        notices.append(
            f"{layout.dropped_operations:,} operations were left out that most steps do not have"
        )
    return notices
