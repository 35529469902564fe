"""The training job: plain ``torch.distributed`` data parallelism that knows nothing of Peerwatch.

Every rank trains a next-byte predictor on the text of Python's standard library and averages its
gradients with the others over gloo. Run as ``torchrun`` would run it: RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT come from the environment.

A training host mostly waits for its GPU. Here the wait is a sleep, so that eight ranks fit on
two cores and still have the rhythm of real ones: read, compute, wait for all others, write a
checkpoint now and then (rank 0 only, which makes its node honestly unlike its peers).
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

# Bytes, and their values: chosen for a step that two cores can take for eight ranks.
_CONTEXT = 32
_VOCABULARY = 256


@dataclass(frozen=True, slots=True)
class Settings:
    """What the launcher may choose; the defaults are the demo's."""

    checkpoint: Path
    steps: int | None = None
    batch: int = 32
    hidden: int = 384
    device_seconds: float = 0.15
    checkpoint_every: int = 100
    log_every: int = 5
    resume: bool = False


class BytePredictor(nn.Module):
    """Predict the next byte from the last 32; about 0.5 M parameters, 2 MB of gradients."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_VOCABULARY, 32)
        self.layers = nn.Sequential(
            nn.Linear(_CONTEXT * 32, hidden), nn.ReLU(), nn.Linear(hidden, _VOCABULARY)
        )

    def forward(self, context: Tensor) -> Tensor:
        """Return logits (batch, 256) for contexts (batch, 32)."""
        logits: Tensor = self.layers(self.embedding(context).flatten(1))
        return logits


class Corpus:
    """The data loader: every batch is read anew from files, each rank in its own order."""

    def __init__(self, files: list[Path], rank: int) -> None:
        self._files = [path for path in files if path.stat().st_size > 4 * _CONTEXT]
        self._random = random.Random(rank)  # noqa: S311 - an order of reading, not a secret

    def batch(self, size: int) -> tuple[Tensor, Tensor]:
        """Return contexts (size, 32) and the byte after each (size,)."""
        text = self._random.choice(self._files).read_bytes()
        starts = [self._random.randrange(len(text) - _CONTEXT) for _ in range(size)]
        windows = torch.tensor([list(text[s : s + _CONTEXT + 1]) for s in starts])
        return windows[:, :-1], windows[:, -1]


def save_checkpoint(
    path: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Write all that training goes on from, on the disk before it does, as real jobs do."""
    partial = path.with_suffix(".partial")
    content = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    with partial.open("wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Go on from a checkpoint, if there is one; return its step."""
    if not path.exists():
        return 0
    content = torch.load(path, weights_only=True)
    model.load_state_dict(content["model"])
    optimizer.load_state_dict(content["optimizer"])
    return int(content["step"])


def train(settings: Settings, rank: int) -> None:
    """Run steps until there are enough, or for ever."""
    torch.manual_seed(0)
    model = DistributedDataParallel(BytePredictor(settings.hidden), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    corpus = Corpus(sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")), rank)
    step = load_checkpoint(settings.checkpoint, model.module, optimizer) if settings.resume else 0
    if settings.resume and rank == 0:
        print(f"resumes at step {step}", flush=True)
    began = time.monotonic()
    while settings.steps is None or step < settings.steps:
        context, following = corpus.batch(settings.batch)
        loss = nn.functional.cross_entropy(model(context), following)
        time.sleep(settings.device_seconds)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        step += 1
        if rank == 0 and step % settings.checkpoint_every == 0:
            save_checkpoint(settings.checkpoint, step, model.module, optimizer)
        if rank == 0 and step % settings.log_every == 0:
            speed = settings.log_every / (time.monotonic() - began)
            print(f"step={step} loss={loss.item():.3f} steps_per_second={speed:.2f}", flush=True)
            began = time.monotonic()


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, join the process group, train."""
    parser = argparse.ArgumentParser(description="A small data-parallel training job.")
    parser.add_argument("--checkpoint", type=Path, required=True, help="file that rank 0 writes")
    parser.add_argument("--steps", type=int, default=None, help="stop after this many steps")
    parser.add_argument("--device-seconds", type=float, default=0.15, help="wait in every step")
    parser.add_argument("--checkpoint-every", type=int, default=100, help="steps between two")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint there")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    try:
        settings = Settings(
            options.checkpoint,
            options.steps,
            device_seconds=options.device_seconds,
            checkpoint_every=options.checkpoint_every,
            resume=options.resume,
        )
        train(settings, rank)
    except RuntimeError as error:
        # A peer is gone. The scheduler decides what becomes of the job: until it does, the rank
        # stays, as it would under a launcher that waits for a new rendezvous.
        # With its class, as in a traceback: so the signatures of logs know it.
        why = f"{type(error).__name__}: {error}"
        print(f"rank={rank} lost its peers: {why}", file=sys.stderr, flush=True)
        while True:
            time.sleep(1)
    # Whoever left first would break off its peers' last exchange.
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # DistributedDataParallel keeps gloo's threads beyond the process group. One that still lets go
    # of its last tensor while the interpreter ends would abort the process.
    os._exit(code)
