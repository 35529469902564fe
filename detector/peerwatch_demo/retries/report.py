"""The table of a replay."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from peerwatch_demo.retries.replay import Outcome


@dataclass(frozen=True, slots=True)
class Row:
    """One policy over several seeds.

    Parameters
    ----------
    policy
        Its name.
    retries, recovered
        A thousand failed jobs, on average.
    wasted
        GPU time of retries that failed, as a share of that of always retrying; of each seed.
    loss
        Percent of all successes that are lost against always retrying; of each seed.
    """

    policy: str
    retries: float
    recovered: float
    wasted: tuple[float, ...]
    loss: tuple[float, ...]


def rows(outcomes: Mapping[str, Sequence[Outcome]], always: str) -> list[Row]:
    """Return a row for each policy.

    Parameters
    ----------
    outcomes
        By policy, one of each seed.
    always
        The policy that the others are compared with.
    """
    best = outcomes[always]
    return [
        Row(
            name,
            mean(1000 * each.retries / each.jobs for each in found),
            mean(1000 * each.recovered / each.jobs for each in found),
            tuple(each.wasted / least.wasted for each, least in zip(found, best, strict=True)),
            tuple(each.success_loss(least) for each, least in zip(found, best, strict=True)),
        )
        for name, found in outcomes.items()
    ]


def table(found: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown; where seeds differ, with their range."""
    lines = [
        "| policy | retries | jobs recovered | wasted retry GPU time | success loss, points |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.policy} | {row.retries:.0f} | {row.recovered:.0f} "
        f"| {_percent(row.wasted)} | {_points(row.loss)} |"
        for row in found
    ]
    return "\n".join(lines) + "\n"


def _percent(values: Sequence[float]) -> str:
    low, high = 100 * min(values), 100 * max(values)
    middle = f"{100 * mean(values):.0f} %"
    return middle if high - low < 1 else f"{middle} ({low:.0f} to {high:.0f})"


def _points(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    middle = f"{mean(values):.2f}"
    return middle if high - low < 0.01 else f"{middle} ({low:.2f} to {high:.2f})"
