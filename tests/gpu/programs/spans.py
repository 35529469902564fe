"""One rank that computes on a GPU, and says on lines of JSON what it measured of it itself."""

from __future__ import annotations

import json
import random
import sys
import time

import torch
from peerwatch_spans import segment
from torch import nn

COMPARED, WARM_UPS = 60, 10
SEGMENTS, PAIRS = 196, 16
# As many in a row, since only some of the steps are timed of what comes in every step; it takes a
# few to be seen.
STEPS, FIRST_STEPS = 32, 8
# Longer than the 5 s from which on a segment is pending; at 2 GHz.
HANG_CYCLES = 24_000_000_000


def say(**what: object) -> None:
    """Tell the part."""
    print(json.dumps(what), flush=True)


def compare(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    """Train some steps, and time forward and backward by events of its own."""
    forward, backward = [], []
    for step in range(COMPARED + WARM_UPS):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        optimizer.zero_grad()
        events[0].record()
        computed = model(batch)
        events[1].record()
        loss = computed.square().mean()
        events[2].record()
        loss.backward()
        events[3].record()
        optimizer.step()
        torch.cuda.synchronize()
        if step >= WARM_UPS:
            forward.append(events[0].elapsed_time(events[1]) / 1e3)
            backward.append(events[2].elapsed_time(events[3]) / 1e3)
    say(compared={"forward": forward, "backward": backward, "until": time.time()})


def cost() -> None:
    """Run some steps with and some without 196 segments, in random order within a pair.

    Waits by asking, as a wait by CUDA takes a whole CPU.
    """
    left = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    weight = nn.Parameter(torch.zeros(1, device="cuda"))
    weight.grad = torch.zeros_like(weight)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    rng = random.Random(1)
    means: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(PAIRS + 1):
        for named in rng.sample((True, False), 2):
            for step in range(STEPS):
                if step == FIRST_STEPS:
                    wall, cpu = time.perf_counter(), time.process_time()
                for _ in range(SEGMENTS):
                    if named:
                        with segment("part"):
                            torch.mm(left, left)
                    else:
                        torch.mm(left, left)
                optimizer.step()
                end = torch.cuda.Event()
                end.record()
                while not end.query():
                    time.sleep(0.0005)
            took = time.perf_counter() - wall, time.process_time() - cpu
            means[named].append((took[0] / (STEPS - FIRST_STEPS), took[1] / (STEPS - FIRST_STEPS)))
    say(cost={"without": means[False][1:], "with": means[True][1:]})


def graph(model: nn.Module, batch: torch.Tensor) -> None:
    """Capture the model into a graph, replay it, and compare it with what it computes without."""
    with torch.no_grad():
        wanted = model(batch)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            model(batch)
        torch.cuda.current_stream().wait_stream(aside)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            computed = model(batch)
        captured.replay()
        torch.cuda.synchronize()
    say(graph=bool(torch.allclose(wanted, computed)))


def main() -> int:
    """Do one after the other."""
    torch.manual_seed(0)
    layers = [part for _ in range(8) for part in (nn.Linear(4096, 4096), nn.ReLU())]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randn(2048, 4096, device="cuda")
    compare(model, optimizer, batch)
    cost()
    graph(model, batch)
    sys.stdin.readline()
    with segment("hang"):
        torch.cuda._sleep(HANG_CYCLES)
    began = time.monotonic()
    say(hanging=time.time())
    torch.cuda.synchronize()
    say(hung=time.monotonic() - began)
    sys.stdin.readline()
    return 0


if __name__ == "__main__":
    sys.exit(main())
