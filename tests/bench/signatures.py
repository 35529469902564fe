"""How fast logs are matched with the signatures: healthy ones, and with errors in them.

python -m bench.signatures [FILE ...] [--megabytes N]

Files are logs of your own; without any, the sample of healthy logs that ships is repeated. A speed
is CPU time, the best of five turns, blocks of 256 KiB. 100 MB/s are 1 % of a core at 1 MB/s.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from peerwatch_common.signatures.matcher import LogMatcher, MatchTable
from peerwatch_common.signatures.prefilter import HEALTHY, reduced
from peerwatch_common.signatures.signature_set import load_signatures

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK = 256 * 1024
TURNS = 5
ERRORS = (
    b"gpu-1:100:200 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote "
    b"peer 10.0.0.7<51159>",
    b"[rank3]:[E816 01:45:40.212150935 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught "
    b"collective operation timeout: WorkNCCL(SeqNum=80078, OpType=ALLREDUCE, NumelIn=2106881, "
    b"NumelOut=2106881, Timeout(ms)=600000) ran for 600013 milliseconds before timing out.",
    b'[rank3]: Traceback (most recent call last):\n[rank3]:   File "train.py", line 1, in f\n'
    b"[rank3]:     loss.backward()\n[rank3]: RuntimeError: CUDA error: unspecified launch failure",
)


def with_errors(log: bytes, every: int) -> bytes:
    """Return a log in which every so manieth line is one of an error."""
    lines = log.split(b"\n")
    for number in range(every, len(lines), every):
        lines[number] = ERRORS[number // every % len(ERRORS)]
    return b"\n".join(lines)


def progress_bars(size: int) -> bytes:
    """Return a log of updates of a progress bar."""
    bar = "\r 42%|████▏     | 4242/10000 [1:02:03<1:23:45,  1.15it/s, loss=2.345, lr=0.0001]"
    return bar.encode() * (size // len(bar.encode()))


def speed(work: Callable[[bytes], object], log: bytes) -> float:
    """Return how many MB of a log are worked through in a second of CPU time."""
    blocks = [log[start : start + BLOCK] for start in range(0, len(log), BLOCK)]
    best = float("inf")
    for _ in range(TURNS):
        began = time.process_time()
        for block in blocks:
            work(block)
        best = min(best, time.process_time() - began)
    return len(log) / 1e6 / best


def main() -> None:
    """Print the speeds as a table, and what was matched in the logs given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="logs (default: the sample)")
    parser.add_argument("--megabytes", type=int, default=16, help="of each (default %(default)s)")
    arguments = parser.parse_args()
    size = arguments.megabytes * 1_000_000
    text = b"\n".join(path.read_bytes() for path in arguments.files) or HEALTHY.read_bytes()
    log = text * max(1, size // len(text))
    table = MatchTable(load_signatures().of_log("job"))
    print("| log | MB | MB/s | of a core at 1 MB/s |")
    print("|---|---|---|---|")
    logs = {
        "as it is": log,
        "progress bars": progress_bars(size),
        "1 % lines of errors": with_errors(log, 100),
        "10 % lines of errors": with_errors(log, 10),
    }
    for name, each in logs.items():
        found = speed(LogMatcher(table).feed, each)
        print(f"| {name} | {len(each) / 1e6:.0f} | {found:.0f} | {1 / found:.2%} |")
    print(f"\n{len(table.prefilter.triggers)} texts are searched for in a block,")
    print(f"of which {len(reduced(log)) / len(log):.0%} is left.")
    events = LogMatcher(table).feed(text + b"\n")
    print("Matched in one copy:", dict(Counter(event.signature.id for event in events)))


if __name__ == "__main__":
    main()
