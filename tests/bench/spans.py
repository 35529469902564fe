"""What spans cost a training loop: the same loop with the hook's spans and without, in turns.

python -m bench.spans [--rounds N] [--steps N]

Each step loads, computes forward and backward, steps its optimiser and is in 196 segments of its
own: 200 spans. What a step costs is its CPU time, of all threads; of a process the median counts,
and of the turns again. The first part has steps of 50 ms with real work in every segment, whose
own variation hides a per cent; the second has none, so that the difference is what spans cost.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import peerwatch_exporter

_HOOK = Path(peerwatch_exporter.__file__).parent / "hook"
STEP_SECONDS = 0.050

LOOP = """
import json, os, sys, time, torch
from torch.utils.data import DataLoader
try:
    from peerwatch_spans import segment
except ImportError:
    from contextlib import nullcontext as segment
torch.set_num_threads(1)
steps, repeats, hooked = json.loads(sys.argv[1])
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
left, right = torch.ones(96, 96), torch.ones(96, 96)
seconds = []
for rows in DataLoader(torch.ones(steps + 20, 8), batch_size=1):
    began = time.process_time()
    optimizer.zero_grad()
    model(rows).sum().backward()
    optimizer.step()
    for number in range(196):
        if hooked is None:
            for _ in range(repeats):
                torch.mm(left, right)
        else:
            with segment("part"):
                for _ in range(repeats):
                    torch.mm(left, right)
    seconds.append(time.process_time() - began)
print(json.dumps(seconds[20:]))
"""


def run(*, spans: bool, steps: int, repeats: int, directory: str) -> list[float]:
    """Run the loop in a process of its own; return the CPU seconds of each step."""
    environment = {key: value for key, value in os.environ.items() if "PEERWATCH" not in key}
    environment["RANK"], environment["WORLD_SIZE"] = "0", "1"
    if spans:
        environment |= {
            "PYTHONPATH": str(_HOOK),
            "PEERWATCH_HEARTBEAT_DIR": directory,
            "PEERWATCH_SPANS": "1",
        }
    argument = json.dumps([steps, repeats, spans or None])
    command = [sys.executable, "-c", LOOP, argument]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: list[float] = json.loads(done.stdout)
    return found


def compare(rounds: int, steps: int, repeats: int) -> tuple[float, float]:
    """Return the medians of the CPU seconds of a step without spans and with them."""
    medians: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as directory:
        for number in range(rounds):
            for spans in (False, True) if number % 2 else (True, False):
                found = run(spans=spans, steps=steps, repeats=repeats, directory=directory)
                medians[spans].append(statistics.median(found))
    return statistics.median(medians[False]), statistics.median(medians[True])


def main() -> None:
    """Print both parts as a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="turns (default %(default)s)")
    parser.add_argument("--steps", type=int, default=200, help="steps a turn (default %(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        probe = run(spans=False, steps=20, repeats=10, directory=directory)
    repeats = max(1, round(10 * STEP_SECONDS / statistics.median(probe)))
    print("| step | CPU without spans, ms | with 200 spans, ms | difference, us | of 50 ms |")
    print("|---|---|---|---|---|")
    for name, count in (("with 50 ms of work", repeats), ("without work", 0)):
        without, spans = compare(arguments.rounds, arguments.steps, count)
        more = spans - without
        print(
            f"| {name} | {without * 1e3:.3f} | {spans * 1e3:.3f} | {more * 1e6:.0f} "
            f"| {more / STEP_SECONDS:.2%} |"
        )


if __name__ == "__main__":
    main()
