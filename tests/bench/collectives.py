"""What reading the Flight Recorder costs a training job: 4 ranks over gloo, steps of 50 ms.

In one job, whose ring is full, the exporter's readers are switched on and off in turn. Each rank
notes time and CPU time of every step, its helper threads' included; each stretch with readers is
compared with the stretch without them beside it. A busy machine makes both slower alike, and hides
a cost this small; so at the end the job pauses, and what one answer takes of a rank's CPU time is
measured by itself.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import peerwatch_exporter
from peerwatch_exporter.settings.config import CollectivesConfig
from peerwatch_exporter.sources.collectives.recorder import RecorderReader

RANKS = 4
STEP_SECONDS = 0.05
# A few buckets of gradients, and what the step does besides.
TRAINING = """
import os, sys, time, torch
import torch.distributed as dist

torch.set_num_threads(1)
rank, ranks, step_seconds = (float(text) for text in sys.argv[2:5])
dist.init_process_group(
    "gloo", init_method="file://" + sys.argv[1], rank=int(rank), world_size=int(ranks)
)
buckets = [torch.ones(25_000) for _ in range(4)]
weights = torch.ones(256, 256)
for _ in range(200):
    dist.all_reduce(buckets[0][:1])
    dist.barrier()
    dist.all_reduce(buckets[0][:1])
notes = open(sys.argv[5], "w")
pause = os.path.join(os.path.dirname(sys.argv[5]), "pause")
began, cpu = time.time(), time.process_time()
while True:
    while os.path.exists(pause):
        time.sleep(0.1)
    for bucket in buckets:
        weights @ weights
        dist.all_reduce(bucket)
        bucket /= ranks
    time.sleep(max(0.0, began + step_seconds - time.time()))
    before, before_cpu = began, cpu
    began, cpu = time.time(), time.process_time()
    notes.write(f"{began} {began - before} {cpu - before_cpu}\\n")
    notes.flush()
"""


def start(folder: Path) -> list[subprocess.Popen[bytes]]:
    """Start the ranks, with the hook."""
    script = folder / "train.py"
    script.write_text(TRAINING)
    hook = Path(peerwatch_exporter.__file__).parent / "hook"
    environment = {
        **os.environ,
        "PYTHONPATH": str(hook),
        "PEERWATCH_HEARTBEAT_DIR": str(folder),
        "PEERWATCH_JOB_ID": "bench",
        "WORLD_SIZE": str(RANKS),
    }
    return [
        subprocess.Popen(
            [
                *(sys.executable, script, folder / "rendezvous", str(rank), str(RANKS)),
                *(str(STEP_SECONDS), folder / f"notes-{rank}"),
            ],
            env={**environment, "RANK": str(rank)},
            stderr=subprocess.DEVNULL,
        )
        for rank in range(RANKS)
    ]


def stretch(folder: Path, seconds: float, *, reading: bool) -> tuple[float, float, float]:
    """Let the job run for some seconds; return when that was, and the readers' own CPU time."""
    readers = [
        RecorderReader(
            folder / f"rank-{rank}.sock", folder / f"rank-{rank}.groups.json", CollectivesConfig()
        )
        for rank in range(RANKS if reading else 0)
    ]
    begin, cpu = time.time(), time.process_time()
    for reader in readers:
        reader.start()
    time.sleep(seconds)
    for reader in readers:
        reader.stop()
    problems = [r.reading.problem for r in readers if r.reading is not None and r.reading.problem]
    if problems:
        raise SystemExit(f"a rank was not read: {problems[0]}")
    return begin, time.time(), time.process_time() - cpu


def steps(folder: Path, begin: float, end: float) -> tuple[float, float]:
    """Return the median duration of the ranks' steps in a stretch, and their mean CPU time."""
    walls, cpus = [], []
    for rank in range(RANKS):
        for line in (folder / f"notes-{rank}").read_text().splitlines():
            at, wall, cpu = map(float, line.split())
            if begin + 0.2 < at <= end:
                walls.append(wall)
                cpus.append(cpu)
    return statistics.median(walls), statistics.fmean(cpus)


def cpu_of_answer(
    folder: Path, process: subprocess.Popen[bytes], answers: int = 40
) -> tuple[float, float]:
    """Return the CPU time that an idle rank takes for one answer, and the time between two."""

    def cpu() -> int:
        tasks = Path(f"/proc/{process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    reader = RecorderReader(
        folder / "rank-0.sock", folder / "rank-0.groups.json", CollectivesConfig()
    )
    reader.read()
    idle = cpu()
    begin = time.monotonic()
    time.sleep(5)
    idle_rate = (cpu() - idle) / (time.monotonic() - begin)
    before, begin = cpu(), time.monotonic()
    for _ in range(answers):
        reading = reader.read()
        if reading.problem is not None:
            raise SystemExit(f"the rank was not read: {reading.problem}")
    spent = cpu() - before - idle_rate * (time.monotonic() - begin)
    return spent / answers / 1e9, reader.period_seconds


def measure(folder: Path, pairs: int, seconds: float) -> None:
    """Print the table."""
    slower, added, own = [], [], []
    for pair in range(pairs):
        # Alternately first, so that a trend of the machine's load cancels out.
        order = (False, True) if pair % 2 else (True, False)
        measured = {on: stretch(folder, seconds, reading=on) for on in order}
        (wall, cpu), (wall_read, cpu_read) = (
            steps(folder, *measured[on][:2]) for on in (False, True)
        )
        slower.append(wall_read / wall - 1)
        added.append((cpu_read - cpu) / STEP_SECONDS)
        own.append((measured[True][2] - measured[False][2]) / seconds / RANKS)
        print(
            f"pair {pair + 1}: step {wall * 1e3:.2f} -> {wall_read * 1e3:.2f} ms, "
            f"CPU per step {cpu * 1e3:.3f} -> {cpu_read * 1e3:.3f} ms",
            flush=True,
        )
    print("\n| of a step of 50 ms | median of pairs |\n|---|---|")
    print(f"| longer | {statistics.median(slower):.3%} |")
    print(f"| more CPU time in the rank, all its threads | {statistics.median(added):.3%} |")
    print(f"| CPU time of the exporter per rank | {statistics.median(own):.3%} of a CPU |")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=10, help="of a stretch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes = start(folder)
        try:
            ready = [folder / f"rank-{rank}.sock" for rank in range(RANKS)]
            notes = [folder / f"notes-{rank}" for rank in range(RANKS)]
            deadline = time.monotonic() + 300
            while not all(path.exists() for path in (*ready, *notes)):
                if time.monotonic() > deadline:
                    raise SystemExit("the job did not start within 300 s; is torch installed?")
                time.sleep(0.2)
            time.sleep(8)  # until the ring is full
            measure(folder, options.pairs, options.seconds)
            (folder / "pause").touch()
            time.sleep(2)
            answer, period = cpu_of_answer(folder, processes[0])
            print(f"| CPU time of the rank for one answer | {answer * 1e3:.2f} ms |")
            print(f"| that is, every {period:.1f} s | {answer / period:.3%} of a CPU |")
        finally:
            for process in processes:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
