"""What spans cost a training loop, in CPU time of a step.

python -m bench.spans [--pairs N] [--turns N] [--steps N]

Each step loads, computes forward and backward, steps its optimiser and is in 196 segments of its
own: 200 spans. What a machine does besides changes CPU time by per cents within seconds, so only
what ran under the same conditions is compared:

- with work between the spans: steps with the 196 segments and without them take turns in one
  process, in random order within a pair; it is 5 ms, as the variation of 50 would hide a per cent;
- without work: a process with the hook and one without run at the same time, all 200 spans.

Other programs on a processor make its caches cold for this one, so on a busy machine all costs
more; the fastest tenth of the steps met the fewest of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import peerwatch_exporter
from bench.paired import Difference, difference

_HOOK = Path(peerwatch_exporter.__file__).parent / "hook"
STEP_SECONDS = 0.050
WORK_SECONDS = 0.005

LOOP = """
import json, random, sys, time, torch
from torch.utils.data import DataLoader
try:
    from peerwatch_spans import segment
except ImportError:
    segment = None
torch.set_num_threads(1)
steps, repeats, in_pairs = json.loads(sys.argv[1])
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
left, right = torch.ones(96, 96), torch.ones(96, 96)
rng = random.Random(1)
seconds, order = [], []
for rows in DataLoader(torch.ones(steps + 20, 8), batch_size=1):
    order = order or (rng.sample((True, False), 2) if in_pairs else [segment is not None])
    named = order.pop()
    began = time.process_time()
    optimizer.zero_grad()
    model(rows).sum().backward()
    optimizer.step()
    if named:
        for number in range(196):
            with segment("part"):
                for _ in range(repeats):
                    torch.mm(left, right)
    else:
        for number in range(196):
            for _ in range(repeats):
                torch.mm(left, right)
    seconds.append((named, time.process_time() - began))
print(json.dumps(seconds[20:]))
"""


def start(
    *, spans: bool, steps: int, repeats: int, in_pairs: bool, directory: str
) -> subprocess.Popen[str]:
    """Start the loop in a process of its own."""
    environment = {key: value for key, value in os.environ.items() if "PEERWATCH" not in key}
    environment["RANK"], environment["WORLD_SIZE"] = "0", "1"
    if spans:
        environment |= {
            "PYTHONPATH": str(_HOOK),
            "PEERWATCH_HEARTBEAT_DIR": directory,
            "PEERWATCH_SPANS": "1",
        }
    command = [sys.executable, "-c", LOOP, json.dumps([steps, repeats, in_pairs])]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def seconds_of(process: subprocess.Popen[str]) -> list[tuple[bool, float]]:
    """Return of each step whether it was in segments, and its CPU seconds."""
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"the loop failed with status {process.returncode}; is torch installed?")
    return [(bool(named), float(cpu)) for named, cpu in json.loads(output)]


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds: of a step without spans, what they add, and what they add to the fastest."""

    without: float
    more: Difference
    more_of_fastest: float


def fastest(seconds: list[float]) -> float:
    """Return the CPU seconds below which a tenth of the steps are."""
    return float(np.quantile(seconds, 0.1))


def with_work(pairs: int, directory: str) -> Cost:
    """Return what 196 segments add to a step with work."""
    how = {"spans": True, "in_pairs": True, "directory": directory}
    probe = seconds_of(start(steps=20, repeats=10, **how))
    repeats = max(1, round(10 * WORK_SECONDS / statistics.median(cpu for _, cpu in probe)))
    steps = seconds_of(start(steps=2 * pairs, repeats=repeats, **how))
    without, named = ([cpu for on, cpu in steps if on is which] for which in (False, True))
    more = difference(without, named)
    return Cost(statistics.median(without), more, fastest(named) - fastest(without))


def without_work(turns: int, steps: int, directory: str) -> Cost:
    """Return what hook and 200 spans add to a step without work."""
    medians: dict[bool, list[float]] = {False: [], True: []}
    least: dict[bool, list[float]] = {False: [], True: []}
    for number in range(turns):
        order = (False, True) if number % 2 else (True, False)
        processes = {
            spans: start(spans=spans, steps=steps, repeats=0, in_pairs=False, directory=directory)
            for spans in order
        }
        for spans, process in processes.items():
            seconds = [cpu for _, cpu in seconds_of(process)]
            medians[spans].append(statistics.median(seconds))
            least[spans].append(fastest(seconds))
    more = difference(medians[False], medians[True])
    of_fastest = statistics.median(least[True]) - statistics.median(least[False])
    return Cost(statistics.median(medians[False]), more, of_fastest)


def main() -> None:
    """Print both parts as a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=400, help="of steps (default %(default)s)")
    parser.add_argument("--turns", type=int, default=7, help="of processes (default %(default)s)")
    parser.add_argument("--steps", type=int, default=1000, help="a turn (default %(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        rows = {
            "with 5 ms of work, 196 spans": with_work(arguments.pairs, directory),
            "without work, hook and 200 spans": without_work(
                arguments.turns, arguments.steps, directory
            ),
        }
    print(f"load {os.getloadavg()[0]:.0f}")
    print("| step | CPU without, ms | more with spans (95 % interval) | of 50 ms | fastest tenth |")
    print("|---|---|---|---|---|")
    for name, cost in rows.items():
        share = f"{cost.more.median / STEP_SECONDS:.2%}"
        of_fastest = (
            f"{cost.more_of_fastest * 1e6:.0f} us, {cost.more_of_fastest / STEP_SECONDS:.2%}"
        )
        more = f"{cost.more.text('us', 1e6)}, {cost.more.pairs} pairs"
        print(f"| {name} | {cost.without * 1e3:.3f} | {more} | {share} | {of_fastest} |")


if __name__ == "__main__":
    main()
