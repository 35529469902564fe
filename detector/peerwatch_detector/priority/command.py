"""The command ``prioritize``: learns the order of the metrics from labelled cases."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from peerwatch_common.errors import ConfigError
from peerwatch_detector.backtest.cases import find_cases
from peerwatch_detector.backtest.commands import Teller
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.errors import CaseError
from peerwatch_detector.priority.config_file import merged, place_of, snippet
from peerwatch_detector.priority.picture import draw
from peerwatch_detector.priority.tree import Place, Priority, learn
from peerwatch_detector.priority.windows import read_windows

_HEADINGS = ("metric", "depth", "importance", "faulty side", "folds", "lacking")


def run_prioritize(options: argparse.Namespace, config: DetectorConfig) -> int:
    """Learn the order, show it, write it; 2 if a case was broken or incomplete.

    Raises
    ------
    CaseError
        If no case can be used, or something cannot be written.
    ConfigError
        If the picture is not to be an SVG file.
    TrainingError
        If the cases are too few, or tell nothing.
    """
    if options.picture and options.picture.suffix.lower() != ".svg":
        raise ConfigError([f"--picture {options.picture}: is drawn as SVG; name it *.svg."])
    for path in filter(None, (options.output, options.picture)):
        if path.is_dir() or not os.access(path.parent, os.W_OK):
            raise CaseError(f"{path}: cannot be written; its folder must exist.")
    # Read before it may be overwritten: --output may be the same file.
    present = options.config.read_text() if options.config else None
    # What is compared stays as it is; only the order is learnt.
    metrics = config.detection_metrics()
    folders = find_cases(options.cases)
    told = Teller(len(folders), sys.stderr)
    read = []
    for folder in folders:
        read.append(read_windows(folder, metrics, config))
        told.tell(read[-1].outcome)
    code = told.end()
    cases = [one for one in read if not one.outcome.error]
    if not cases:
        raise CaseError("None of the cases could be used; see above.")
    priority = learn(
        cases,
        [metric.name for metric in metrics],
        depth=options.depth,
        seed=options.seed,
        progress=_show,
    )
    sys.stdout.write(table(priority))
    text = _configuration(priority, config, present, options)
    if options.output:
        _write(options.output, text)
    else:
        sys.stdout.write(f"\n{text}")
    if options.picture:
        _write(options.picture, draw(priority))
    return code


def table(priority: Priority) -> str:
    """Return the order as a table, and how far the tree can be believed."""
    rows = [_HEADINGS, *(_row(place, priority.folds) for place in priority.places)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(_HEADINGS))]
    lines = [_aligned(row, widths) for row in rows]
    median = priority.permuted[len(priority.permuted) // 2]
    chance = f"{median:.2f} (at most {priority.permuted[-1]:.2f})"
    parts = [
        _counted(priority),
        "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]]),
        f"Balanced accuracy on held-out cases: {priority.accuracy:.2f}; with labels dealt anew "
        f"among\nthe cases {chance} in {len(priority.permuted)} draws; always the same answer "
        "0.50.",
        "depth: questions before the metric's first. faulty side: where its thresholds have the\n"
        "faulty windows; method minder looks for high scores only. folds: trees of the\n"
        "cross-validation that ask it. lacking: cases without a sample of it, taken as 0.",
    ]
    return "\n\n".join(parts) + "\n"


def _counted(priority: Priority) -> str:
    return (
        f"{priority.cases} cases, {priority.faults} with a fault; {priority.windows} windows, "
        f"{priority.faulty_windows} of them within a fault"
    )


def _row(place: Place, folds: int) -> tuple[str, ...]:
    if place.depth is None:
        return (place.metric, "-", "-", "-", f"{place.folds}/{folds}", str(place.lacking))
    importance = f"{place.importance:.3f}"
    asked = f"{place.folds}/{folds}"
    return (place.metric, str(place.depth), importance, place.side, asked, str(place.lacking))


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = row
    cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
    return "  ".join([first.ljust(widths[0]), *cells])


def _configuration(
    priority: Priority, config: DetectorConfig, present: str | None, options: argparse.Namespace
) -> str:
    """Return the configuration to write, with the order in it."""
    place = place_of(config)
    if present is None or options.output is None:
        comment = (
            f"Order of the metrics learnt by prioritize --depth {options.depth} --seed "
            f"{options.seed} from\n{_counted(priority)}.\n"
            f"Balanced accuracy on held-out cases {priority.accuracy:.2f}."
        )
        return snippet(place, priority.order, comment)
    text, kept = merged(present, place, priority.order)
    if not kept:
        sys.stderr.write(
            f"peerwatch-detector: {options.config} cannot be changed in place; "
            f"{options.output} has its settings without its comments.\n"
        )
    return text


def _show(done: int, total: int) -> None:
    """Show how far the cross-validations are, on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K" + (f"cross-validation {done}/{total}" if done < total else ""))
        sys.stderr.flush()


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise CaseError(f"{path}: cannot be written: {error.strerror}.") from error
