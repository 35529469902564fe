"""A real job over gloo whose ranks dump torch's Flight Recorder, with one bad rank.

    python gloo_job.py FOLDER slow|hang RANKS RANK

Each rank sums over a group of its own pair and over all ranks. The bad rank takes 80 ms longer in
every step, or does not come to the tenth. ``FOLDER/<rank>.json`` is the newest dump of a rank.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace_json

SLOW_SECONDS = 0.080
STEPS = 20


def _dump(folder: Path, rank: int) -> None:
    text = _dump_fr_trace_json()
    new = folder / f"{rank}.new"
    new.write_bytes(text if isinstance(text, bytes) else text.encode())
    new.rename(folder / f"{rank}.json")


def _dump_for_ever(folder: Path, rank: int) -> None:
    while True:
        time.sleep(0.5)
        _dump(folder, rank)


def train(folder: Path, fault: str, ranks: int, bad: int, rank: int) -> None:
    """Be one rank; it ends when its parent ends it."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    pairs = [dist.new_group([first, first + 1]) for first in range(0, ranks, 2)]
    values = torch.ones(1000)
    for step in range(STEPS):
        if rank == bad and fault == "hang" and step == STEPS // 2:
            _dump_for_ever(folder, rank)
        if rank == bad and fault == "slow":
            time.sleep(SLOW_SECONDS)
        if fault == "hang" and step == STEPS // 2:
            threading.Thread(target=_dump_for_ever, args=(folder, rank), daemon=True).start()
        dist.all_reduce(values, group=pairs[rank // 2])
        dist.all_reduce(values)
    _dump(folder, rank)


def main() -> None:
    """Fork the ranks: torch is imported once."""
    folder, fault = Path(sys.argv[1]), sys.argv[2]
    ranks, bad = int(sys.argv[3]), int(sys.argv[4])
    for rank in range(ranks):
        if not os.fork():
            train(folder, fault, ranks, bad, rank)
            os._exit(0)
    for _ in range(ranks):
        os.wait()


if __name__ == "__main__":
    main()
