"""The table of all measurements, and how they grow with the size of a job."""

from __future__ import annotations

from collections.abc import Sequence

from bench.growth import exponent
from bench.measurement import Measurement

_HEAD = "| what | ours | the peer or plain way | ours / peer | floor | ours / floor | goal |"
# An exponent of fewer sizes says little.
_LEAST_SIZES = 3


def number(value: float) -> str:
    """Return three significant digits, without an exponent."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    digits = f"{value:.3g}"
    return digits if "e" not in digits else f"{value:.6f}".rstrip("0")


def table_of(measurements: Sequence[Measurement]) -> str:
    """Return the measurements for people, in Markdown."""
    return "\n".join([_HEAD, "|---" * 7 + "|", *(_row(each) for each in measurements)])


def _row(each: Measurement) -> str:
    peer = "-" if each.peer is None else f"{number(each.peer)} ({each.peer_name})"
    floor = "-" if each.floor is None else f"{number(each.floor)} ({each.floor_name})"
    ratios = ("-" if r is None else number(r) for r in (each.ratio, each.over_floor))
    ratio, over = ratios
    return (
        f"| {each.name} | {number(each.ours)} {each.unit} | {peer} | {ratio} | {floor} | {over} "
        f"| {_goals(each)} |"
    )


def _goals(each: Measurement) -> str:
    missed = each.missed()
    said = [
        ("ratio " if goal.of == "ratio" else "")
        + number(goal.most)
        + (": MISSED" if goal in missed else ": met")
        for goal in each.goals
    ]
    return ", ".join(said) or "-"


def growth_of(measurements: Sequence[Measurement]) -> str:
    """Return a table of what was measured at three sizes or more, with exponents; or nothing."""
    curves: dict[tuple[str, str], dict[int, float]] = {}
    for each in measurements:
        if each.nodes is not None:
            curves.setdefault((each.what, each.unit), {})[each.nodes] = each.ours
    curves = {key: curve for key, curve in curves.items() if len(curve) >= _LEAST_SIZES}
    if not curves:
        return ""
    sizes = sorted({nodes for curve in curves.values() for nodes in curve})
    lines = [
        f"| growth | {' | '.join(f'{nodes:,}' for nodes in sizes)} nodes | exponent |",
        "|---" * (len(sizes) + 2) + "|",
    ]
    for (what, unit), curve in curves.items():
        cells = (number(curve[nodes]) if nodes in curve else "-" for nodes in sizes)
        power = exponent(list(curve), list(curve.values()))
        lines.append(f"| {what}, {unit} | {' | '.join(cells)} | {power:.2f} |")
    return "\n".join(lines)
