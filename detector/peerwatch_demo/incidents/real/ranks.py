"""One rank of a small training job over gloo in which one thing goes wrong."""

from __future__ import annotations

import ctypes
import datetime
import faulthandler
import importlib
import os
import resource
import socket
import time
from pathlib import Path

import torch
import torch.distributed as dist

# The rank on which it goes wrong, where it is one.
BAD_RANK = 2
# Chosen for a job of seconds: its peers give up soon, but not on a busy machine.
FAULT_STEP, STEPS = 10, 30
TIMEOUT_SECONDS = 20
_STEP_SECONDS = 0.05


def train(fault: str, rank: int, ranks: int, port: int, scratch: Path) -> None:
    """Train until the fault, or to the end.

    Parameters
    ----------
    fault
        What goes wrong.
    rank, ranks, port
        This rank of how many, and where they meet.
    scratch
        A small filesystem.
    """
    if fault == "import_error":
        importlib.import_module("flash_attention_kernels")
    if fault == "file_missing":
        Path("/data/tokens-v7/index.json").read_text()
    torch.set_num_threads(1)
    # Held until the rank ends.
    taken = socket.create_server(("", port)) if fault == "port_in_use" and rank == 0 else None
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=TIMEOUT_SECONDS),
    )
    model = torch.nn.Linear(64, 64)
    for step in range(STEPS):
        for parameter in model.parameters():
            dist.all_reduce(parameter.data)
            parameter.data.div_(ranks)
        if step == FAULT_STEP and (rank == BAD_RANK or fault.endswith("_all")):
            go_wrong(fault, model, scratch)
        time.sleep(_STEP_SECONDS)
    dist.destroy_process_group()
    if taken is not None:
        taken.close()


def go_wrong(fault: str, model: torch.nn.Module, scratch: Path) -> None:
    """Do what a program or its surroundings do wrongly."""
    match fault:
        case "exception":
            _ = {"input_ids": 1}["image_path"]
        case "exception_all":
            model(torch.ones(2, 63))
        case "nan_all":
            raise RuntimeError("loss is nan, stopping training")
        case "exit_without_a_word":
            os._exit(3)
        case "memory_limit":
            used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            resource.setrlimit(resource.RLIMIT_AS, (used, used))
            bytearray(2**34)
        case "wrong_shape":
            dist.all_reduce(torch.ones(5))
        case "other_collective":
            dist.broadcast(torch.ones(64, 64), src=BAD_RANK)
        case "leaves_early":
            os._exit(0)
        case "segmentation_fault":
            faulthandler.enable()
            ctypes.string_at(0)
        case "killed":
            os.kill(os.getpid(), 9)
        case "hangs":
            time.sleep(10 * TIMEOUT_SECONDS)
        case "disk_full":
            torch.save(torch.ones(1_000_000), scratch / "checkpoint.pt")
