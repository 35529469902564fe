"""What following the logs of jobs costs: real processes write, the exporter's own process reads.

python -m bench.logs [FILE ...] [--seconds N] [--directory DIR]

Eight ranks write to a file each, 1 MB/s and 50 MB/s together, and log like healthy training jobs:
lines of the sample that ships, each with new numbers, and one in twenty with a new word. With FILE
they write these logs instead. CPU time is that of the process that reads and of the collector in
the main process, without finding the ranks, which the collector ``ranks`` does.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from bench.processes import usage
from hardware_cases import only
from log_cases import Job
from peerwatch_common.signatures.prefilter import HEALTHY

if TYPE_CHECKING:
    from collections.abc import Iterator

RANKS = 8
RATES = (0, 1_000_000, 50_000_000)
_SAMPLE_BYTES = 4_000_000
# More than any rate here: what is skipped would cost nothing.
_MOST_BYTES_PER_SECOND = 268_435_456
_SCRAPE_SECONDS = 1.0
# Writes a file over and over at a rate, twenty times a second.
_RANK = """
import sys, time
text, rate, place = open({path!r}, "rb").read(), {rate}, {place}
began, written = time.monotonic(), 0
while True:
    due = int((time.monotonic() - began) * rate) - written
    while due > 0:
        part = text[place : place + due]
        sys.stdout.buffer.write(part)
        place = (place + len(part)) % len(text)
        written, due = written + len(part), due - len(part)
    sys.stdout.buffer.flush()
    time.sleep(0.05)
"""


class Cost(NamedTuple):
    """What was measured at one rate, per second: bytes, CPU seconds of both processes."""

    read: float
    skipped: float
    reader: float
    main: float


def training_log(seed: int, size: int = _SAMPLE_BYTES) -> bytes:
    """Return a log of healthy lines that never repeats itself to the letter.

    Parameters
    ----------
    seed
        Of its numbers and words.
    size
        In bytes, as a minimum.
    """
    random = Random(seed)
    sample = HEALTHY.read_bytes().splitlines()
    lines: list[bytes] = []
    while size > 0:
        line = bytes(
            random.choice(b"0123456789") if 48 <= byte <= 57 else byte
            for byte in random.choice(sample)
        )
        if not len(lines) % 20:
            line += b" " + bytes(random.choices(b"abcdefghijklmnopqrstuvwxyz", k=12))
        lines.append(line)
        size -= len(line) + 1
    return b"\n".join([*lines, b""])


@contextmanager
def _job(directory: Path, log: Path, rate: int) -> Iterator[Job]:
    """Run a job that writes a log at a rate in bytes per second, all ranks together."""
    job = Job(directory, max_bytes_per_second=_MOST_BYTES_PER_SECOND)
    try:
        for rank in range(RANKS):
            place = rank * log.stat().st_size // RANKS
            job.rank(rank, _RANK.format(path=str(log), rate=rate // RANKS, place=place))
        job.wait_for(lambda samples: sum(only(samples, "log_files").values()) == RANKS)
        yield job
    finally:
        job.close()


def _reader(job: Job) -> int:
    (pid,) = [
        pid for pid, each in job.sources.own_processes._processes.items() if each.kind == "logs"
    ]
    return pid


def _supervisor_seconds() -> float:
    """Return the CPU seconds of the thread that hears the reading process."""
    (thread,) = [each for each in threading.enumerate() if each.name == "logs"]
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0))


def measure(job: Job, seconds: float) -> Cost:
    """Return what a job's logs cost, with a scrape each second."""
    pid = _reader(job)
    amounts = [job.samples()]
    before, supervisor = usage(pid), _supervisor_seconds()
    began, main = time.monotonic(), 0.0
    while time.monotonic() - began < seconds:
        time.sleep(_SCRAPE_SECONDS)
        job.find_ranks()
        start = time.thread_time()
        for _family in job.collector.collect():
            pass
        main += time.thread_time() - start
    lasted = time.monotonic() - began
    reader = usage(pid).cpu_since(before)
    main += _supervisor_seconds() - supervisor
    amounts.append(job.samples())
    read, skipped = (
        (only(amounts[1], name).get(("job",), 0) - only(amounts[0], name).get(("job",), 0)) / lasted
        for name in ("log_read_bytes_total", "log_skipped_bytes_total")
    )
    return Cost(read, skipped, reader / lasted, main / lasted)


def _row(cost: Cost) -> str:
    return (
        f"| {cost.read / 1e6:.2f} | {cost.skipped / 1e6:.2f} | {cost.reader:.2%} | {cost.main:.2%} "
        f"| {cost.reader + cost.main:.2%} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="logs (default: made of the sample)")
    parser.add_argument("--seconds", type=float, default=20.0, help="per rate (%(default)s)")
    parser.add_argument("--directory", help="where to write (default: that of temporary files)")
    arguments = parser.parse_args()
    text = b"".join(path.read_bytes() for path in arguments.files) or training_log(1)
    print("| MB/s read | MB/s skipped | reading process | main process | of a core |")
    print("|---|---|---|---|---|")
    for rate in RATES:
        with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
            log = Path(directory) / "log"
            log.write_bytes(text)
            with _job(Path(directory), log, rate) as job:
                print(_row(measure(job, arguments.seconds)), flush=True)


if __name__ == "__main__":
    main()
