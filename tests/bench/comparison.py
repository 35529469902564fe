"""A saved run beside a new one: ratios only, for seconds of two days or machines say nothing."""

from __future__ import annotations

from collections.abc import Sequence

from bench.measurement import Measurement
from bench.table import number

# Two runs of the same program differ by so much on a machine with other work.
_NOISE = 1.25


def comparison(saved: Sequence[Measurement], new: Sequence[Measurement]) -> str:
    """Return for people, in Markdown, how the ratios of two runs differ.

    Ours is divided by the peer's of the same run, or by the floor where there is no peer; what has
    neither, or is in one run only, cannot be compared and is named below the table.
    """
    before = {each.name: each for each in saved}
    lines = [
        "| what | divided by | saved | new | new / saved | |",
        "|---|---|---|---|---|---|",
    ]
    left: list[str] = []
    for each in new:
        old = before.pop(each.name, None)
        found = None if old is None else _ratios(old, each)
        if found is None:
            left.append(each.name)
            continue
        by, first, second = found
        change = second / first
        word = "slower" if change > _NOISE else "faster" if change < 1 / _NOISE else ""
        lines.append(
            f"| {each.name} | {by} | {number(first)} | {number(second)} | {change:.2f} | {word} |"
        )
    left += before
    if left:
        lines.append(f"\nWithout a ratio in both runs: {'; '.join(left)}.")
    return "\n".join(lines)


def _ratios(old: Measurement, new: Measurement) -> tuple[str, float, float] | None:
    """Return by what both are divided, and the ratios; the same peer or floor in both runs."""
    if old.ratio and new.ratio and old.peer_name == new.peer_name:
        return new.peer_name, old.ratio, new.ratio
    if old.over_floor and new.over_floor and old.floor_name == new.floor_name:
        return f"floor: {new.floor_name}", old.over_floor, new.over_floor
    return None
