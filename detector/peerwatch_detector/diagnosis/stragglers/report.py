"""Writes an analysis for a person, and for programs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from peerwatch_detector import __version__
from peerwatch_detector.diagnosis.stragglers.causes import Conclusion
from peerwatch_detector.diagnosis.stragglers.layout import Layout
from peerwatch_detector.diagnosis.stragglers.whatif import WhatIf

# Rows of a table for a person; JSON has all. Chosen: with the summary they fit in 24 lines.
_ROWS = 8


def as_text(
    layout: Layout, measures: WhatIf, conclusion: Conclusion, notices: Sequence[str]
) -> str:
    """Return the analysis as text: the conclusion, the measures, and where the time is lost."""
    lines = [_heading(layout)]
    lines += [f"Note: {notice}." for notice in notices]
    lines += ["", _named(conclusion)]
    for cause in conclusion.causes:
        share = "" if math.isnan(cause.share) else f" ({cause.share:.0%} of the lost time)"
        lines.append(f"Cause: {cause.name}{share}. {cause.text}")
    lines += ["", *_measures(measures)]
    lines += ["", *_table("type of operation", measures.by_kind)]
    if len(measures.by_stage) > 1:
        stages = {f"stage {stage}": value for stage, value in measures.by_stage.items()}
        lines += ["", *_table("stage", stages)]
    ranks = {_rank(layout, worker): value for worker, value in measures.by_worker.items()}
    lines += ["", *_table("worker", ranks)]
    return "\n".join(lines) + "\n"


def as_json(
    layout: Layout, measures: WhatIf, conclusion: Conclusion, notices: Sequence[str]
) -> dict[str, Any]:
    """Return the analysis as what JSON can hold; what does not apply is null."""
    replicas = layout.replicas
    return {
        "version": __version__,
        "steps": len(layout.steps),
        "dp_ranks": len(replicas),
        "stages": len(layout.all_stages),
        "operations": int(layout.duration.size),
        "notices": list(notices),
        "recorded_seconds": measures.recorded_seconds,
        "replayed_seconds": measures.replayed_seconds,
        "ideal_seconds": measures.ideal_seconds,
        "S": measures.slowdown,
        "S_by_operation": measures.by_kind,
        "S_by_dp_rank": {
            str(replicas[index]): value for index, value in measures.by_replica.items()
        },
        "S_by_stage": {str(stage): value for stage, value in measures.by_stage.items()},
        "S_by_worker": [
            {**_place(layout, worker), "S": value} for worker, value in measures.by_worker.items()
        ],
        "M_w": measures.worst_share,
        "M_w_workers": [_place(layout, worker) for worker in measures.worst],
        "M_s": _finite(measures.last_stage_share),
        "share_by_stage": {str(stage): share for stage, share in measures.stage_shares.items()},
        "uneven_share": measures.uneven_share,
        "correlation": _finite(measures.correlation),
        "slow_workers_share": measures.slow_workers_share,
        "causes": [
            {"cause": cause.name, "share": _finite(cause.share), "text": cause.text}
            for cause in conclusion.causes
        ],
        "named": [asdict(worker) for worker in conclusion.workers],
    }


def _heading(layout: Layout) -> str:
    return (
        f"{len(layout.steps):,} steps, {len(layout.replicas):,} data-parallel ranks x "
        f"{len(layout.all_stages):,} stages, {layout.duration.size:,} operations"
    )


def _named(conclusion: Conclusion) -> str:
    if not conclusion.workers:
        return "Names nobody."
    return "\n".join(
        f"Names rank {worker.rank}"
        + (f" on node {worker.node}" if worker.node else "")
        + f": dp_rank {worker.replica}, stage {worker.stage}, {worker.ratio:.2f} times as long as "
        "its peers."
        for worker in conclusion.workers
    )


def _measures(measures: WhatIf) -> Iterable[str]:
    yield (
        f"Step {measures.recorded_seconds:.3f} s as recorded, {measures.replayed_seconds:.3f} s "
        f"replayed, {measures.ideal_seconds:.3f} s with every operation at its ideal"
    )
    yield f"S    {measures.slowdown:6.3f}  slowdown, the replay against the ideal"
    yield f"M_w  {measures.worst_share:6.3f}  share of it that the worst 3 % of workers explain"
    if not math.isnan(measures.last_stage_share):
        yield f"M_s  {measures.last_stage_share:6.3f}  share that the last stage explains"
    yield f"M_l  {measures.uneven_share:6.3f}  share that uneven microbatches explain"


def _table(title: str, values: Mapping[str, float]) -> Iterable[str]:
    """Yield the highest slowdowns, if only this were as it was."""
    highest = sorted(values.items(), key=lambda item: -item[1])
    width = max(len(title), *(len(name) for name, _ in highest[:_ROWS]))
    yield f"{title.ljust(width)}       S"
    for name, value in highest[:_ROWS]:
        yield f"{name.ljust(width)}  {value:6.3f}"
    if len(highest) > _ROWS:
        yield f"{len(highest) - _ROWS:,} more, {highest[-1][1]:.3f} to {highest[_ROWS][1]:.3f}"


def _rank(layout: Layout, worker: tuple[int, int]) -> str:
    place = _place(layout, worker)
    node = f" {place['node']}" if place["node"] else ""
    return f"rank {place['rank']}{node} (dp {place['dp_rank']}, stage {place['stage']})"


def _place(layout: Layout, worker: tuple[int, int]) -> dict[str, Any]:
    replica, stage = layout.replicas[worker[0]], worker[1]
    rank = layout.ranks[replica, stage]
    return {
        "rank": rank,
        "node": layout.nodes.get(rank, ""),
        "dp_rank": replica,
        "stage": stage,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
