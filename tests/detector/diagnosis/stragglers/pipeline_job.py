"""A pipeline-parallel training job, simulated the slow and obvious way.

Every operation of every rank is an object that knows what it waits for; a step is swept until all
have run. It shares nothing with what it tests but the names of the operations.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

NAMES = ["dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id"]
Key = tuple[int, int, str, int]  # dp_rank, stage, optype, seq_id


@dataclass
class Job:
    """A job of replicas x stages; computing takes ``work(step, dp_rank, stage, microbatch)``."""

    replicas: int = 4
    stages: int = 4
    microbatches: int = 6
    steps: int = 3
    work: Callable[[int, int, int, int], float] = lambda *_: 1.0
    # What an operation takes instead, by step and key.
    costs: dict[tuple[int, Key], float] = field(default_factory=dict)

    def rank(self, replica: int, stage: int) -> int:
        return stage * self.replicas + replica

    def cost(self, step: int, key: Key) -> float:
        if (step, key) in self.costs:
            return self.costs[step, key]
        replica, stage, name, number = key
        share = {"forward-compute": 1.0, "backward-compute": 2.0, "optimizer": 0.2, "gc": 0.0}
        if name in ("forward-compute", "backward-compute"):
            return share[name] * self.work(step, replica, stage, number)
        return share.get(name, 0.01)

    def all_keys(self) -> list[Key]:
        return [
            (replica, stage, name, number)
            for replica in range(self.replicas)
            for stage in range(self.stages)
            for name, number in self.operations(stage)
        ]

    def operations(self, stage: int) -> Iterator[tuple[str, int]]:
        yield "params-all-gather", 0
        for number in range(self.microbatches):
            if stage:
                yield "forward-recv", number
                yield "backward-send", number
            yield "forward-compute", number
            yield "backward-compute", number
            if stage < self.stages - 1:
                yield "forward-send", number
                yield "backward-recv", number
        yield from (("gc", 0), ("grads-reduce-scatter", 0))
        yield from (("optimizer-clip-main-grad", 0), ("optimizer", 0))

    def computing(self, stage: int) -> list[tuple[str, int]]:
        """The order of one-forward-one-backward."""
        warm = min(self.stages - 1 - stage, self.microbatches)
        order = [("forward-compute", number) for number in range(warm)]
        for number in range(self.microbatches - warm):
            order += [("forward-compute", warm + number), ("backward-compute", number)]
        left = range(self.microbatches - warm, self.microbatches)
        return order + [("backward-compute", number) for number in left]

    def waits_for(self, key: Key) -> list[Key]:
        """What must have ended in the same rank."""
        replica, stage, name, number = key
        own = [(name_, number_) for name_, number_ in self.operations(stage)]
        order = self.computing(stage)
        before: list[tuple[str, int]] = []
        if name in ("forward-compute", "backward-compute"):
            place = order.index((name, number))
            before += order[max(place - 1, 0) : place]
            before += [(name.replace("compute", "recv"), number)]
            before += [("params-all-gather", 0)] * (name == "forward-compute" and number == 0)
        elif name.endswith(("send", "recv")):
            direction = name.partition("-")[0]
            before += [(name, number - 1)]
            shift = 0 if name.endswith("send") else 1
            before += [(f"{direction}-compute", number - shift)]
            first = next(i for i, (kind, _) in enumerate(order) if kind == "backward-compute")
            if direction == "backward" and number == 0 and first >= 2:
                before += [order[first - 2]]
        elif name != "params-all-gather":
            ends = ["gc", "grads-reduce-scatter", "optimizer-clip-main-grad", "optimizer"]
            place = ends.index(name)
            before += [(ends[place - 1], 0)] if place else [order[-1]]
        return [(replica, stage, *found) for found in before if found in own]

    def together(self, key: Key) -> list[Key]:
        """Which operations begin to transfer when the last of them has begun."""
        replica, stage, name, number = key
        if name in ("params-all-gather", "grads-reduce-scatter"):
            return [(other, stage, name, number) for other in range(self.replicas)]
        if name == "optimizer-clip-main-grad":
            return [
                (other, place, name, number)
                for other in range(self.replicas)
                for place in range(self.stages)
            ]
        if name.endswith(("send", "recv")):
            towards = {"forward-send": 1, "forward-recv": -1, "backward-send": -1}.get(name, 1)
            end = name.replace("send", "x").replace("recv", "send").replace("x", "recv")
            return [key, (replica, stage + towards, end, number)]
        return [key]

    @cached_property
    def structure(self) -> dict[Key, tuple[list[Key], list[Key]]]:
        return {key: (self.waits_for(key), self.together(key)) for key in self.all_keys()}

    def run(self, step: int) -> dict[Key, tuple[float, float]]:
        """Return start and end of every operation of a step."""
        starts: dict[Key, float] = {}
        ends: dict[Key, float] = {}
        pending = list(self.structure)
        while pending:
            left = []
            for key in pending:
                before, group = self.structure[key]
                if key not in starts and all(other in ends for other in before):
                    starts[key] = max((ends[other] for other in before), default=0.0)
                if all(other in starts for other in group):
                    begun = max(starts[other] for other in group)
                    ends[key] = begun + self.cost(step, key)
                else:
                    left.append(key)
            assert len(left) < len(pending), f"stuck: {left[:3]}"
            pending = left
        return {key: (starts[key], ends[key]) for key in ends}

    def step_seconds(self) -> list[float]:
        return [max(end for _, end in self.run(step).values()) for step in range(self.steps)]

    def rows(self) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = []
        for step in range(self.steps):
            for (replica, stage, name, number), (start, end) in self.run(step).items():
                where = (replica, stage, self.rank(replica, stage), 100 + step)
                values = (*where, name, 1000.0 * step + start, end - start, number)
                rows.append(dict(zip(NAMES, values, strict=True)))
        return rows

    def write(self, path: Path) -> Path:
        return write_table(path, self.rows())


def write_table(path: Path, rows: list[dict[str, object]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def uneven(seed: int, spread: float = 0.6) -> Callable[[int, int, int, int], float]:
    """Work of sequences of random length: the same for all stages of a replica."""

    def work(step: int, replica: int, _stage: int, microbatch: int) -> float:
        drawn = np.random.default_rng([seed, step, replica, microbatch])
        return float(np.exp(spread * drawn.standard_normal()))

    return work
