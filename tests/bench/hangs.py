"""Jobs of random layouts that stand: how often the rank is named, and how long it takes.

python -m bench.hangs --layouts 1000
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from random import Random

from detector.diagnosis.training_layout import Job, Layout, standing, trial
from peerwatch_detector.diagnosis.collectives.hang.hang import hangs

FAULTS = ("hung", "silent", "dead", "device")


def accuracy(layouts: int) -> None:
    """Print how many culprits were named, and how many victims."""
    named, victims, total, ranks = Counter(), 0, Counter(), 0
    slowest = 0.0
    for seed in range(1, layouts + 1):
        case = trial(seed, FAULTS)
        start = time.perf_counter()
        roots = hangs(case.snapshot)
        slowest = max(slowest, time.perf_counter() - start)
        total[case.fault] += 1
        named[case.fault] += any(root.ranks == (case.culprit,) for root in roots)
        victims += sum(rank != case.culprit for root in roots for rank in root.ranks)
        ranks = max(ranks, case.layout.ranks)
    for fault in FAULTS:
        print(f"{fault:>8}: named in {named[fault]} of {total[fault]}")
    print(f"victims named: {victims}; up to {ranks} ranks; slowest {slowest * 1000:.0f} ms")


def duration() -> None:
    """Print how long one snapshot of 1,024 ranks takes."""
    job = Job(Layout(8, 4, 32, 8), Random(1))
    state, _ = standing(job, "hung", 517, 3, 20, starts=True)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        (root,) = hangs(state)
        times.append(time.perf_counter() - start)
    groups = len(state.groups)
    print(f"1,024 ranks in {groups} groups: {sorted(times)[2] * 1000:.0f} ms, rank {root.ranks[0]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layouts", type=int, default=1000)
    accuracy(parser.parse_args().layouts)
    duration()
