"""Writes evaluations for a person: tables that fit a terminal of 120 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from peerwatch_detector.backtest.evaluation import HEALTHY, Evaluation, Measure, Share

_COUNTS = ["TP", "FN", "FP"]
_SHARES = ["precision", "recall", "F1"]
_TIMES = ["delay", "p90", "lead"]
_HEADINGS = ["method", *_COUNTS, *_SHARES, *_TIMES, "GPU", "false/node-day"]


def report(evaluations: Mapping[str, Evaluation], *more: Mapping[str, Evaluation]) -> str:
    """Return all tables: the methods side by side, then by fault, then by size of the job.

    Parameters
    ----------
    evaluations
        By method.
    *more
        Shown next to them in the first table only: variants, references.
    """
    first = next(iter(evaluations.values())).overall
    parts = [
        f"{first.cases} cases, {first.faults} with a fault, {first.node_days:.2f} node-days",
        _overall([evaluations, *more]),
        _groups("fault", {name: evaluation.by_fault for name, evaluation in evaluations.items()}),
        _groups(
            "nodes", {name: evaluation.by_job_size for name, evaluation in evaluations.items()}
        ),
        "TP: the first finding at or after the onset names a faulty node; FN: any other fault.\n"
        "FP, false: another node flagged, or a finding before the onset or in a healthy case.\n"
        "In brackets 95 % intervals, by fault and size the faults found and their median delay.\n"
        "delay: seconds from onset to finding, median and 90th percentile; lead: from there to\n"
        "the halt of the job. GPU: share of the faults found on single GPUs with a right GPU.\n"
        "false/node-day: with the upper 95 % bound (Poisson).\n"
        "first node, random node: told when something is wrong, they guess.",
    ]
    return "\n\n".join(parts) + "\n"


def _overall(groups: Sequence[Mapping[str, Evaluation]]) -> str:
    rows = [_HEADINGS]
    for name, evaluation in (item for group in groups for item in group.items()):
        overall = evaluation.overall
        counts = [
            str(count)
            for count in (overall.true_positives, overall.false_negatives, overall.false_positives)
        ]
        rows.append(
            [name, *counts]
            + [_share(share) for share in (overall.precision, overall.recall, overall.f1)]
            + [_seconds(overall.delay_median_seconds), _seconds(overall.delay_p90_seconds)]
            + [_seconds(overall.lead_median_seconds), _part(overall.right_gpu), _rate(overall)]
        )
    return _aligned(rows)


def _groups(title: str, groups: Mapping[str, Mapping[str, Measure]]) -> str:
    """Return found / faults, median delay and false findings by group and method."""
    known = next(iter(groups.values()))
    rows = [[title, "cases", *groups]]
    for group, measure in known.items():
        cells = [_cell(group, by_group[group]) for by_group in groups.values()]
        rows.append([group, str(measure.cases), *cells])
    return _aligned(rows)


def _cell(group: str, measure: Measure) -> str:
    false = f"{measure.false_positives} false" if measure.false_positives else ""
    if group == HEALTHY or not measure.faults:
        return false or "clean"
    parts = [f"{measure.true_positives}/{measure.faults}"]
    if measure.delay_median_seconds is not None:
        parts.append(f"{measure.delay_median_seconds:.0f} s")
    return " ".join([*parts, *([false] if false else [])])


def _share(share: Share) -> str:
    if share.value is None:
        return "-"
    return f"{share.value:.2f} ({_bound(share.low)}-{_bound(share.high)})"


def _bound(value: float | None) -> str:
    # 0.87 as .87: the tables are wide enough.
    return "" if value is None else "1" if value > 0.995 else f"{value:.2f}".lstrip("0")


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _part(share: Share) -> str:
    return "-" if share.value is None else f"{share.value:.2f}"


def _rate(measure: Measure) -> str:
    rate, bound = measure.false_findings_per_node_day, measure.false_per_node_day_bound
    return "-" if rate is None or bound is None else f"{rate:.2g} (<{bound:.2g})"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as columns: the first to the left, the others to the right."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    lines = []
    for row in rows:
        first, *others = (cell for cell in row)
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
