"""The books of simulated fleets of 2,048 nodes, a year: ``python -m bench.fleet_year [FLEETS]``.

Nodes differ (gamma, shape 0.8), weeks differ (gamma, shape 2), and both means are known: printed is
how long the books take, and how often their intervals hold the truth.
"""

from __future__ import annotations

import random
import sys
import time
from bisect import bisect_right

from peerwatch_reliability.records import JobRow, Jobs, Window
from peerwatch_reliability.report.books import books_of
from peerwatch_reliability.settings.config import ReliabilityConfig
from peerwatch_reliability.sources.prometheus.evidence import NOTHING_OBSERVED
from peerwatch_reliability.sources.prometheus.signals import NO_SIGNALS

DAY, WEEKS = 86_400.0, 52
T0 = 1_700_000_000.0
RATE = 4e-3  # failures per node-day
SLOTS = {512: 1, 256: 2, 64: 8, 8: 32, 1: 256}  # jobs of so many nodes at a time


def fleet(seed: int) -> tuple[list[JobRow], dict[str, float]]:
    """Return the rows of a year, and the true failures per second of a job by size class."""
    draw = random.Random(seed)
    weeks = [draw.gammavariate(2, 0.5) for _ in range(WEEKS)]
    rows: list[JobRow] = []
    truth: dict[str, float] = {}
    first = number = 0
    for nodes, slots in SLOTS.items():
        rates = []
        for _ in range(slots):
            names = tuple(f"n{first + each}" for each in range(nodes))
            first += nodes
            rate = sum(draw.gammavariate(0.8, RATE / 0.8) for _ in names) / DAY
            rates.append(rate)
            failures = sorted(
                (week + draw.random()) * 7 * DAY
                for week, factor in enumerate(weeks)
                for _ in range(_poisson(draw, rate * factor * 7 * DAY))
            )
            clock = 0.0
            while clock < WEEKS * 7 * DAY:
                number += 1
                left, submit = min(7 * DAY, draw.expovariate(1 / DAY)), clock
                while left > 0 and clock < WEEKS * 7 * DAY:
                    start = clock + draw.expovariate(1 / 300)
                    place = bisect_right(failures, start)
                    failure = failures[place] if place < len(failures) else float("inf")
                    failed = failure < start + left
                    clock = failure if failed else start + left
                    left = left - (failure - start) if failed else 0.0
                    rows.append(
                        JobRow(
                            *(str(number), str(number), len(rows), "u", f"j{number}", "/"),
                            *("node_fail" if failed else "completed", T0 + submit, None),
                            *(T0 + start, T0 + clock, 0.0, names, 8 * nodes),
                        )
                    )
                    submit = clock
        truth[str(8 * nodes)] = sum(rates) / slots
    return rows, truth


def _poisson(draw: random.Random, mean: float) -> int:
    count, total = 0, draw.expovariate(1)
    while total < mean:
        count, total = count + 1, total + draw.expovariate(1)
    return count


def main(fleets: int) -> int:
    """Make the books of some fleets; say what they took, and how right they were."""
    window = Window(T0, T0 + WEEKS * 7 * DAY)
    held = asked = 0
    for seed in range(fleets):
        rows, truth = fleet(seed)
        began, used = time.monotonic(), time.process_time()
        books = books_of(
            Jobs(rows, ()), NOTHING_OBSERVED, NO_SIGNALS, window, ReliabilityConfig(nodes=2048)
        )
        took = f"{time.monotonic() - began:.1f} s, {time.process_time() - used:.1f} s of CPU"
        found = [(each.jobs, truth[each.size_class]) for each in books.sizes]
        within = sum(rate.low <= true <= rate.high for rate, true in found)
        held, asked = held + within, asked + len(found)
        print(f"fleet {seed}: {len(rows)} rows, {took}, {within} of {len(found)} sizes within")
    print(f"{held} of {asked} intervals hold the truth ({held / asked:.1%})")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
