"""The command ``prioritize``: learns the order of the metrics from labelled cases."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from peerwatch_common.progress import Progress
from peerwatch_detector.backtest.case_progress import CaseProgress
from peerwatch_detector.backtest.cases import find_cases
from peerwatch_detector.backtest.output import check_outputs, check_picture, write_text
from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.priority.config_file import merged, order_setting, snippet
from peerwatch_detector.priority.tree import PERMUTATIONS, Priority, RankedMetric, learn
from peerwatch_detector.priority.windows import LabelledWindows, read_windows

_HEADINGS = ("metric", "depth", "importance", "faulty side", "folds", "lacking")


def run_prioritize(options: argparse.Namespace, config: DetectorConfig) -> int:
    """Learn the order, show it, write it; 2 if a case was broken or incomplete.

    Raises
    ------
    CaseError
        If a path holds no case.
    OutputError
        If something cannot be written.
    ConfigError
        If the picture is not to be an SVG file, or cannot be drawn.
    TrainingError
        If the cases are too few, or separate nothing.
    """
    check_picture(options.picture)
    check_outputs(options.output, options.picture)
    # Read before it may be overwritten: --output may be the same file.
    present = options.config.read_text() if options.config else None
    # What is compared stays as it is; only the order is learnt.
    metrics = config.detection_metrics()
    cases, code = _read(find_cases(options.cases), metrics, config)
    if not cases:
        # Each has been named, with its reason.
        return code
    with Progress(sys.stderr, 1 + PERMUTATIONS, "cross-validation") as progress:
        priority = learn(
            cases,
            [metric.name for metric in metrics],
            depth=options.depth,
            seed=options.seed,
            progress=progress.advance,
        )
    sys.stdout.write(table(priority))
    text = _configuration(priority, config, present, options)
    if options.output:
        write_text(options.output, text)
    else:
        sys.stdout.write(f"\n{text}")
    if options.picture:
        # Loads matplotlib, which only a picture needs.
        from peerwatch_detector.priority.picture import draw  # noqa: PLC0415

        write_text(options.picture, draw(priority))
    return code


def _read(
    folders: Sequence[Path], metrics: Sequence[MetricConfig], config: DetectorConfig
) -> tuple[list[LabelledWindows], int]:
    """Return the cases that can be used, and 2 if one was broken or incomplete, else 0."""
    cases = []
    with CaseProgress(len(folders), sys.stderr) as progress:
        for folder in folders:
            case = read_windows(folder, metrics, config)
            progress.add(case.result)
            if not case.result.error:
                cases.append(case)
        return cases, progress.finish()


def table(priority: Priority) -> str:
    """Return the order as a table, and how far the tree can be believed."""
    rows = [_HEADINGS, *(_row(ranked, priority.folds) for ranked in priority.ranking)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(_HEADINGS))]
    lines = [_aligned(row, widths) for row in rows]
    median = priority.permuted[len(priority.permuted) // 2]
    chance = f"{median:.2f} (at most {priority.permuted[-1]:.2f})"
    parts = [
        _counted(priority),
        "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]]),
        f"Balanced accuracy on held-out cases: {priority.accuracy:.2f}; with labels permuted "
        f"among\nthe cases {chance} in {len(priority.permuted)} draws; always the same answer "
        "0.50.",
        "depth: splits before the metric's first. faulty side: where its thresholds have the\n"
        "faulty windows; method minder looks for high scores only. folds: trees of the\n"
        "cross-validation that split by it. lacking: cases without a sample of it, taken as 0.",
    ]
    return "\n\n".join(parts) + "\n"


def _counted(priority: Priority) -> str:
    return (
        f"{priority.cases} cases, {priority.faults} with a fault; {priority.windows} windows, "
        f"{priority.faulty_windows} of them within a fault"
    )


def _row(ranked: RankedMetric, folds: int) -> tuple[str, ...]:
    used, lacking = f"{ranked.folds}/{folds}", str(ranked.lacking)
    if ranked.depth is None:
        return (ranked.metric, "-", "-", "-", used, lacking)
    return (
        ranked.metric,
        str(ranked.depth),
        f"{ranked.importance:.3f}",
        ranked.side,
        used,
        lacking,
    )


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = row
    cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
    return "  ".join([first.ljust(widths[0]), *cells])


def _configuration(
    priority: Priority, config: DetectorConfig, present: str | None, options: argparse.Namespace
) -> str:
    """Return the configuration to write, with the order in it."""
    setting = order_setting(config)
    if present is None or options.output is None:
        comment = (
            f"Order of the metrics learnt by prioritize --depth {options.depth} --seed "
            f"{options.seed} from\n{_counted(priority)}.\n"
            f"Balanced accuracy on held-out cases {priority.accuracy:.2f}."
        )
        return snippet(setting, priority.order, comment)
    text, kept = merged(present, setting, priority.order)
    if not kept:
        sys.stderr.write(
            f"peerwatch-detector: {options.config} cannot be changed in place; "
            f"{options.output} has its settings without its comments.\n"
        )
    return text
