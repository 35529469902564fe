"""A rank that trains over NCCL, and stands still, or hangs in a kernel, when it is told to."""

from __future__ import annotations

import json
import select
import sys
import time

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# At 2 GHz: for longer than this is watched.
FOREVER_CYCLES = 2_000_000_000 * 120


def told() -> str:
    """Return the line that was sent, empty if none was."""
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return sys.stdin.readline().strip() if ready else ""


def main() -> int:
    """Train until told otherwise."""
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
    half = dist.new_group(list(range(dist.get_world_size() // 2)))
    other = dist.new_group(list(range(dist.get_world_size() // 2, dist.get_world_size())))
    mine = half if dist.get_rank() < dist.get_world_size() // 2 else other
    model = DistributedDataParallel(nn.Linear(512, 512).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randn(64, 512, device="cuda")
    gathered = torch.empty(1 << 20, device="cuda")
    for step in range(1 << 30):
        what = told()
        if what == "stand still":
            print(json.dumps({"stands": time.time()}), flush=True)
            time.sleep(600)
        if what == "hang in a kernel":
            print(json.dumps({"stands": time.time()}), flush=True)
            torch.cuda._sleep(FOREVER_CYCLES)
        dist.all_reduce(gathered, group=mine)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()
        if step == 20:
            print(json.dumps({"training": time.time()}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
