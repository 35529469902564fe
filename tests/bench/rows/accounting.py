"""100,000 rows of Slurm's accounting to attempts of jobs, beside pandas over the same rows."""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator

import pandas as pd

from bench.measurement import Goal, Measurement, alone, cpu_in_turns
from bench.sacct import ROWS, lines
from peerwatch_reliability.accounting.attempts import chains_of
from peerwatch_reliability.sources.slurm.sacct import _FIELDS, SEPARATOR, read_sacct

_DAY = 86_400.0


def by_pandas(text: str) -> int:
    """Return how many jobs there are, with runs in order and GPU hours of each, as people do it.

    Node lists are not expanded and submit lines not read, which ours does.
    """
    table = pd.read_csv(io.StringIO(text), sep=SEPARATOR, names=list(_FIELDS), dtype=str)
    for name in ("Submit", "Eligible", "Start", "End"):
        table[name] = pd.to_datetime(pd.to_numeric(table[name]), unit="s")
    gpus = table["AllocTRES"].str.extract(r"gres/gpu=(\d+)")[0].astype(float)
    table["gpu_hours"] = gpus * (table["End"] - table["Start"]).dt.total_seconds() / 3600
    table = table.sort_values(["JobIDRaw", "Start"])
    jobs = table.groupby("JobIDRaw").agg(
        runs=("State", "size"), last=("State", "last"), gpu_hours=("gpu_hours", "sum")
    )
    return len(jobs)


def measurements(_options: argparse.Namespace) -> Iterator[Measurement]:
    """Yield the CPU time from text to attempts."""
    rows = list(lines())
    text = "\n".join(rows)

    def ours() -> None:
        found, unreadable = read_sacct(rows)
        if unreadable or len(chains_of(found, 1e6)) != ROWS // 2:
            raise RuntimeError(f"{unreadable} rows were not read")

    def theirs() -> None:
        if by_pandas(text) != ROWS // 2:
            raise RuntimeError("pandas found other jobs")

    def floor() -> None:
        for row in rows:
            row.split(SEPARATOR)

    times = cpu_in_turns((ours, theirs, floor), 3)
    yield Measurement(
        f"reliability, {ROWS:,} sacct rows to attempts",
        "s CPU",
        *(times[0], times[1], "pandas", times[2], "splitting the lines"),
        goals=(Goal(5),),
    )


if __name__ == "__main__":
    alone(measurements)
