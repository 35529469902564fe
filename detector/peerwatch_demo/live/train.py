"""The training job of the live evaluation: two kinds of process groups, and code that can go wrong.

Every rank trains a small model with the others over gloo, or on a GPU over NCCL, exchanges tensors
with its neighbour in a group of two or three, writes a checkpoint now and then, and evaluates. A
fault of the code itself begins when ``PEERWATCH_LIVE_FAULTS/rank-<rank>`` holds its name. Run as
``torchrun`` would run it, without Peerwatch's packages on the module path.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import threading
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

# As in faults.py and run.py.
FAULTS_VARIABLE = "PEERWATCH_LIVE_FAULTS"
BACKEND_VARIABLE = "PEERWATCH_LIVE_BACKEND"
# Of a step of some 0.4 s; the wait stands for the GPU's work.
_DEVICE_SECONDS = 0.3
# A made-up job and made-up faults, from here on: what slows a step nearly doubles it, what stays
# outlasts a run, and what a job does now and then comes at least once in a run.
_SLEEP_SECONDS = 0.3
_STAYS_SECONDS = 600.0
_CHECKPOINT_EVERY, _SLOW_CHECKPOINT_SECONDS = 50, 25.0
_EVALUATE_EVERY, _EVALUATION_STEPS = 200, 10
# A pause of all ranks, as for a service of the cluster that is away for a moment.
_PAUSE_EVERY, _PAUSE_SECONDS = 1000, 30.0
_LEAK_BYTES, _MOST_LEAKED = 16 << 20, 1200 << 20
_GARBAGE, _COLLECTIONS = 100_000, 6


class Faults:
    """What goes wrong in this rank's code, asked for from outside.

    Parameters
    ----------
    directory
        Of the files that ask for it.
    rank
        Whose code it is.
    """

    def __init__(self, directory: Path, rank: int) -> None:
        self._file = directory / f"rank-{rank}"
        self.name = ""
        self._leaked: list[bytearray] = []

    def read(self) -> None:
        """Find out what goes wrong in this step."""
        try:
            self.name = self._file.read_text().strip()
        except OSError:
            self.name = ""

    def act(self) -> None:
        """Do what goes wrong between forward and backward."""
        if self.name == "infinite_loop":
            while True:
                pass
        if self.name == "lock_held":
            lock = threading.Lock()
            with lock:
                lock.acquire()  # held for ever: by itself
        if self.name == "exception_process_stays":
            # As do the threads of a data loader, and NCCL, which waits for its peers.
            threading.Thread(target=time.sleep, args=(_STAYS_SECONDS,)).start()
        if self.name.startswith("exception"):
            raise ValueError("the batch has a token that the vocabulary lacks")
        if self.name == "nice_19":
            os.setpriority(os.PRIO_PROCESS, 0, 19)
        if self.name == "sleep_per_step":
            time.sleep(_SLEEP_SECONDS)
        if self.name == "gc_storm":
            garbage = [[index] for index in range(_GARBAGE)]
            for _ in range(_COLLECTIONS):
                gc.collect()
            del garbage
        if self.name == "memory_leak" and len(self._leaked) * _LEAK_BYTES < _MOST_LEAKED:
            self._leaked.append(bytearray(b"\x01") * _LEAK_BYTES)


class Samples(Dataset[Tensor]):
    """Random rows; a slow disk is a slow row."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def __len__(self) -> int:
        """Return how many there are: enough for ever."""
        return 1 << 40

    def __getitem__(self, index: int) -> Tensor:
        """Return one row (64,)."""
        if self._faults.name == "slow_loader" and index % 16 == 0:
            time.sleep(_SLEEP_SECONDS)
        return torch.full((64,), float(index % 7))


def train(rank: int, world_size: int, directory: Path, checkpoint: Path, device: str) -> None:
    """Train for ever."""
    torch.manual_seed(0)
    # Every rank makes every group. Of an odd number the last is the third of a group: each rank has
    # a neighbour, without whom its calls would have no order to be wrong in.
    groups = [dist.new_group(members) for members in neighbours(world_size)]
    group = groups[min(rank // 2, len(groups) - 1)]
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.Linear(512, 1)).to(
            device
        )
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    faults = Faults(directory, rank)
    reported = time.monotonic()
    for step, loaded in enumerate(DataLoader(Samples(faults), batch_size=16), start=1):
        faults.read()
        batch = loaded.to(device)
        loss = model(batch).square().mean()
        time.sleep(_DEVICE_SECONDS)
        faults.act()
        exchange(loss.detach(), group, faults.name)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # As most jobs do to log it; a GPU is waited for here, once a step.
        lost = loss.item()
        if step % _CHECKPOINT_EVERY == 0:
            save(model, checkpoint, slow=faults.name == "slow_checkpoint")
        if step % _EVALUATE_EVERY == 0:
            evaluate(model, batch)
        if step % _PAUSE_EVERY == 0:
            time.sleep(_PAUSE_SECONDS)
            dist.barrier()
        if rank == 0 and step % 5 == 0:
            speed = 5 / (time.monotonic() - reported)
            reported = time.monotonic()
            print(f"step={step} loss={lost:.3f} steps_per_second={speed:.2f}", flush=True)


def neighbours(world_size: int) -> list[list[int]]:
    """Return the ranks of each group of neighbours: two, and three in the last of an odd number."""
    ends = [*range(2, world_size - 1, 2), world_size]
    return [list(range(first, last)) for first, last in zip([0, *ends], ends, strict=False)]


def exchange(loss: Tensor, group: dist.ProcessGroup, fault: str) -> None:
    """Average the loss over all ranks, and exchange activations with the neighbours."""
    activations = torch.ones(8192 if fault == "mismatched_shape" else 4096, device=loss.device)
    if fault == "wrong_order":
        dist.all_reduce(activations, group=group)
        dist.all_reduce(loss)
    else:
        dist.all_reduce(loss)
        dist.all_reduce(activations, group=group)


def save(model: nn.Module, path: Path, *, slow: bool) -> None:
    """Write a checkpoint; storage may be slow."""
    if slow:
        time.sleep(_SLOW_CHECKPOINT_SECONDS)
    torch.save(model.state_dict(), path)


def evaluate(model: nn.Module, batch: Tensor) -> None:
    """Compute forward only, for some steps."""
    with torch.no_grad():
        for _ in range(_EVALUATION_STEPS):
            model(batch)
            time.sleep(_DEVICE_SECONDS)


def main(arguments: list[str] | None = None) -> int:
    """Join the process group and train."""
    parser = argparse.ArgumentParser(description="The training job of the live evaluation.")
    parser.add_argument("--checkpoint", type=Path, required=True)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    backend = os.environ.get(BACKEND_VARIABLE, "gloo")
    dist.init_process_group(backend)
    train(
        dist.get_rank(),
        dist.get_world_size(),
        Path(os.environ[FAULTS_VARIABLE]),
        options.checkpoint,
        "cuda" if backend == "nccl" else "cpu",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
