"""Writes this process's heartbeat file, once a second, for as long as it is a rank.

A daemon thread waits until the program has initialised ``torch.distributed`` and from there on
writes ``rank-<rank>.json`` with the number of optimiser steps finished and of batches loaded so
far. It never imports torch by itself and swallows whatever goes wrong: the training job comes
first.

A process that stands still (SIGSTOP, a frozen container) stops its heartbeat: that is the point.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

# Beside this file, on PYTHONPATH; no part of the package.
import peerwatch_recorder  # type: ignore[import-not-found]

# As often as the exporter reads.
PERIOD_SECONDS = 1.0
# Looked for more often than written, so that few of the first steps are missed.
SEARCH_SECONDS = 0.2
# Set to 0 where a global optimiser hook is unwanted (it may break a compiled optimiser's graph).
STEPS_VARIABLE = "PEERWATCH_HEARTBEAT_STEPS"
# The pid that writes for this rank before torch.distributed is up. Helpers it starts inherit the
# variable and stay silent, or they would keep the heartbeat of a dead rank going.
OWNER_VARIABLE = "PEERWATCH_HEARTBEAT_OWNER"
JOB_VARIABLES = ("PEERWATCH_JOB_ID", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID")


class StepCounter:
    """Counts optimiser steps; its hook runs in the training loop, so it does nothing more."""

    def __init__(self) -> None:
        self.attached = False
        self.steps = 0
        self.last_step_time: float | None = None

    def attach(self) -> None:
        """Attach to all optimisers, of whatever model, once torch is completely imported."""
        optimizer = sys.modules.get("torch.optim.optimizer")
        torch_spec = getattr(sys.modules.get("torch"), "__spec__", None)
        if self.attached or optimizer is None or os.environ.get(STEPS_VARIABLE) == "0":
            return
        # While a module is being imported, its functions may stand there before what they use.
        if torch_spec is not None and not getattr(torch_spec, "_initializing", True):
            optimizer.register_optimizer_step_post_hook(self._after_step)
            self.attached = True

    def _after_step(self, *_: object) -> None:
        self.steps += 1
        self.last_step_time = time.time()


class BatchCounter:
    """Counts the batches that the program takes from data loaders, of training and evaluation.

    A rank that evaluates alone while the others wait makes no step, and shows so that it works.
    """

    def __init__(self) -> None:
        self.attached = False
        self.batches = 0

    def attach(self) -> None:
        """Attach to all loaders, once torch is completely imported; see ``StepCounter``."""
        loader = sys.modules.get("torch.utils.data.dataloader")
        torch_spec = getattr(sys.modules.get("torch"), "__spec__", None)
        if self.attached or loader is None or os.environ.get(STEPS_VARIABLE) == "0":
            return
        if torch_spec is None or getattr(torch_spec, "_initializing", True):
            return
        # Both kinds of iterators, with workers and without, inherit it.
        iterator = loader._BaseDataLoaderIter  # noqa: SLF001 - torch has no hook for loaders
        original = iterator.__next__

        @functools.wraps(original)
        def counted(loading: object) -> object:
            batch = original(loading)
            self.batches += 1
            return batch

        iterator.__next__ = counted
        self.attached = True


class Heartbeat:
    """The heartbeat of this process.

    Parameters
    ----------
    directory
        Where the files of all ranks of the node stand; made if it is not there.
    """

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._pid = os.getpid()
        self._started = time.time()
        self._counter = StepCounter()
        self._loaded = BatchCounter()
        self._recorder = peerwatch_recorder.start(self._directory)
        self._ended = threading.Event()
        self._written: set[Path] = set()
        self._last: tuple[int, dict[str, object]] | None = None
        self._failed: dict[str, object] | None = None
        self._thread = threading.Thread(target=self._run, name="peerwatch-heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread, and see to it that the file goes when the program ends normally."""
        if _number("RANK") is not None:
            os.environ.setdefault(OWNER_VARIABLE, str(self._pid))
        atexit.register(self._end)
        self._thread.start()

    def _run(self) -> None:
        next_time = time.monotonic()
        while not self._ended.is_set():
            with suppress(Exception):
                self._counter.attach()
            with suppress(Exception):
                self._loaded.attach()
            if time.monotonic() >= next_time:
                # After a standstill the missed heartbeats are not made up for.
                next_time = max(next_time, time.monotonic() - PERIOD_SECONDS) + PERIOD_SECONDS
                with suppress(Exception):
                    self._write_heartbeat()
            pause = max(0.0, next_time - time.monotonic())
            self._ended.wait(pause if self._counter.attached else min(pause, SEARCH_SECONDS))

    def _write_heartbeat(self) -> None:
        found = _distributed_rank()
        if found is not None:
            self._write(*found, source="distributed")
            if self._recorder is not None:
                self._recorder.update(found[0])
            return
        rank = _number("RANK")
        if rank is None or os.environ.get(OWNER_VARIABLE) != str(self._pid):
            return
        if self._belongs_to_another(rank):
            del os.environ[OWNER_VARIABLE]
            return
        self._write(rank, _number("WORLD_SIZE"), source="environment")

    def _belongs_to_another(self, rank: int) -> bool:
        """Return whether the real rank writes by now, and this process merely launched it."""
        with suppress(OSError, ValueError, LookupError, TypeError):
            document = json.loads(self._path(rank).read_text(encoding="utf-8"))
            # An older file was left by a rank that was killed; this process takes its place.
            fresh = document["time"] > self._started and document["pid"] != self._pid
            return bool(fresh and document["source"] == "distributed")
        return False

    def _write(self, rank: int, world_size: int | None, *, source: str) -> None:
        document: dict[str, object] = {
            "rank": rank,
            "time": time.time(),
            "job_id": _job_id(),
            "local_rank": _number("LOCAL_RANK"),
            "world_size": world_size,
            "pid": self._pid,
            "source": source,
        }
        if self._counter.attached:
            document["step"] = self._counter.steps
            document["last_step_time"] = self._counter.last_step_time
        if self._loaded.attached:
            document["batches"] = self._loaded.batches
        # Threads of the program that go on keep the process, and this one, after its exception.
        if self._failed is None and not threading.main_thread().is_alive() and _has_crashed():
            self._failed = {"ended": time.time(), "error": type(sys.last_value).__name__}
        self._put(rank, {**document, **(self._failed or {})})

    def _put(self, rank: int, document: dict[str, object]) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        # In the same directory, so that a reader sees the old file or the new, never half of one.
        temporary = self._directory / f".rank-{rank}.{self._pid}.tmp"
        temporary.write_text(json.dumps(document), encoding="utf-8")
        temporary.replace(self._path(rank))
        self._written.add(self._path(rank))
        self._last = rank, document

    def _path(self, rank: int) -> Path:
        return self._directory / f"rank-{rank}.json"

    def _end(self) -> None:
        """Take the file away at a normal end; after a crash it stays, to show the rank exited."""
        if os.getpid() != self._pid:  # a forked child ends, not the rank
            return
        self._ended.set()
        self._thread.join(timeout=1)
        crashed = _has_crashed()
        with suppress(Exception):
            if self._recorder is not None:
                self._recorder.end(keep_files=crashed)
        if crashed:
            with suppress(Exception):
                self._say_why(type(sys.last_value).__name__)
            return
        for path in self._written:
            with suppress(OSError):
                path.unlink()

    def _say_why(self, error: str) -> None:
        """Leave the class of the exception that ends the program; its text may hold secrets."""
        if self._last is not None:
            rank, document = self._last
            self._put(rank, {"ended": time.time(), "error": error, **document})


def start(directory: str) -> None:
    """Start the heartbeat of this process."""
    Heartbeat(directory).start()


def _has_crashed() -> bool:
    """Return whether the interpreter has printed an exception that nobody caught."""
    return hasattr(sys, "last_value")


def _distributed_rank() -> tuple[int, int] | None:
    """Return rank and world size if this process has initialised ``torch.distributed``."""
    distributed = sys.modules.get("torch.distributed")
    is_initialized = getattr(distributed, "is_initialized", None)
    if distributed is None or is_initialized is None or not is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _job_id() -> str:
    for name in JOB_VARIABLES:
        value = os.environ.get(name, "").strip()
        # torchrun without a rendezvous id calls every job "none".
        if value and not (name == "TORCHELASTIC_RUN_ID" and value == "none"):
            return value
    return ""


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None
