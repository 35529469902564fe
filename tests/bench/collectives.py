"""What collective telemetry costs a training job: 2 ranks over gloo, steps of 50 ms.

Two jobs run at the same time, one without anything of ours and one with the hook, whose ranks the
exporter's readers ask as they do in production. Each rank notes the CPU time of every step, all its
threads included. Whatever else the machine does hits both alike, so stretches of 5 s are compared
pair by pair. At the end the job pauses, and what one answer takes of a rank's CPU time is measured
by itself.
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
from bench.paired import difference
from peerwatch_exporter.settings.config import CollectivesConfig
from peerwatch_exporter.sources.collectives.recorder import RecorderReader

RANKS = 2
STEP_SECONDS = 0.05
STRETCH_SECONDS = 5.0
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


def start(folder: Path, *, hooked: bool) -> list[subprocess.Popen[bytes]]:
    """Start the ranks of a job in a new folder, with the hook or without it."""
    folder.mkdir()
    script = folder / "train.py"
    script.write_text(TRAINING)
    environment = {name: text for name, text in os.environ.items() if "PEERWATCH" not in name}
    environment["WORLD_SIZE"] = str(RANKS)
    environment.pop("PYTHONPATH", None)
    if hooked:
        environment |= {
            "PYTHONPATH": str(Path(peerwatch_exporter.__file__).parent / "hook"),
            "PEERWATCH_HEARTBEAT_DIR": str(folder),
            "PEERWATCH_JOB_ID": "bench",
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


def readers(folder: Path) -> list[RecorderReader]:
    """Return what the exporter has for each rank."""
    return [
        RecorderReader(
            folder / f"rank-{rank}.sock", folder / f"rank-{rank}.groups.json", CollectivesConfig()
        )
        for rank in range(RANKS)
    ]


def stretches(folder: Path, begin: float, end: float) -> dict[tuple[int, int], tuple[float, float]]:
    """Return by rank and stretch the mean seconds and the mean CPU seconds of its steps."""
    found: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for rank in range(RANKS):
        for line in (folder / f"notes-{rank}").read_text().splitlines():
            at, wall, cpu = map(float, line.split())
            if begin < at <= end:
                key = rank, int((at - begin) // STRETCH_SECONDS)
                found.setdefault(key, []).append((wall, cpu))
    return {
        key: (statistics.fmean(w for w, _ in steps), statistics.fmean(c for _, c in steps))
        for key, steps in found.items()
    }


def cpu_of_answer(
    folder: Path, process: subprocess.Popen[bytes], answers: int = 40
) -> tuple[float, float]:
    """Return the CPU time that an idle rank takes for one answer, and the time between two."""

    def cpu() -> int:
        tasks = Path(f"/proc/{process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    reader = readers(folder)[0]
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


def measure(without: Path, hooked: Path, seconds: float) -> None:
    """Print the table."""
    asking = readers(hooked)
    begin, own = time.time(), time.process_time()
    for reader in asking:
        reader.start()
    time.sleep(seconds)
    end, own = time.time(), time.process_time() - own
    for reader in asking:
        reader.stop()
    problems = [r.reading.problem for r in asking if r.reading is not None and r.reading.problem]
    if problems:
        raise SystemExit(f"a rank was not read: {problems[0]}")
    plain, with_it = (stretches(folder, begin, end) for folder in (without, hooked))
    both = sorted(plain.keys() & with_it.keys())
    more = difference(
        [plain[key][1] / plain[key][0] for key in both],
        [with_it[key][1] / with_it[key][0] for key in both],
    )
    step, cpu = (statistics.median(plain[key][part] for key in both) for part in (0, 1))
    print(f"load {os.getloadavg()[0]:.0f}; steps of {step * 1e3:.1f} ms, CPU {cpu * 1e3:.2f} ms")
    print("\n| of a step | |\n|---|---|")
    print(
        "| more CPU time in the rank, all its threads (95 % interval of "
        f"{more.pairs} pairs) | {more.text('%', 100)} |"
    )
    print(f"| CPU time of the exporter per rank | {own / seconds / RANKS:.3%} of a CPU |")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=180, help="of training (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        plain, hooked = Path(name) / "plain", Path(name) / "hooked"
        processes = [*start(hooked, hooked=True), *start(plain, hooked=False)]
        try:
            wait_for = [hooked / f"rank-{rank}.sock" for rank in range(RANKS)]
            wait_for += [job / f"notes-{rank}" for job in (plain, hooked) for rank in range(RANKS)]
            deadline = time.monotonic() + 300
            while not all(path.exists() for path in wait_for):
                if time.monotonic() > deadline:
                    raise SystemExit("the jobs did not start within 300 s; is torch installed?")
                time.sleep(0.2)
            time.sleep(8)  # until the ring is full
            measure(plain, hooked, options.seconds)
            (hooked / "pause").touch()
            time.sleep(2)
            answer, period = cpu_of_answer(hooked, processes[0])
            print(f"| CPU time of the rank for one answer | {answer * 1e3:.2f} ms |")
            print(f"| that is, every {period:.1f} s | {answer / period:.3%} of a CPU |")
        finally:
            for process in processes:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
