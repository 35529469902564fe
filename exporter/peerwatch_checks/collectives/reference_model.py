"""Steps of a reference model between ranks: a small transformer whose layers end in experts.

It communicates as training does: tokens go to experts on all ranks and come back (all-to-all),
forward and backward, and the gradients of what all ranks share are summed (all-reduce). All ranks
have the same batch and the same parameters, so after any number of steps the shared parameters must
have the same bits on all of them. Only the processes that train import this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import distributed, nn

from peerwatch_checks.accelerators.devices import SEED, Device, synchronize

# Chosen: any will do for a model that is only timed.
_HEADS = 4
_LEARNING_RATE = 1e-3
# Chosen: the first step allocates memory and opens connections, the second may choose algorithms.
_WARM_UPS = 2


@dataclass(frozen=True, slots=True)
class Steps:
    """What steps took on this rank.

    Parameters
    ----------
    seconds
        Computing of a step, without waiting for others: the median over steps.
    bandwidth
        Bus bandwidth over all collectives of a step in GB/s, the median; their duration is that of
        the rank which came last, for it waited for nobody. 0 for one rank.
    right
        Whether all ranks have the same shared parameters.
    """

    seconds: float
    bandwidth: float
    right: bool


class _Clock:
    """Times the collectives of a step, and counts what each rank's link must carry for them."""

    def __init__(self, device: Device, ranks: int) -> None:
        self._device, self._ranks = device, ranks
        self.durations: list[float] = []
        self.carried = 0.0

    def timed(self, work: Callable[[], object], size: int, passes: int) -> None:
        synchronize(self._device)
        start = time.perf_counter()
        work()
        synchronize(self._device)
        self.durations.append(time.perf_counter() - start)
        self.carried += size * passes * (self._ranks - 1) / self._ranks

    def exchanged(self, sent: torch.Tensor) -> torch.Tensor:
        """Return what the ranks sent to this one; block i comes from rank i."""
        received = torch.empty_like(sent)
        size = sent.numel() * sent.element_size()
        self.timed(lambda: distributed.all_to_all_single(received, sent.contiguous()), size, 1)
        return received


class _Exchange(torch.autograd.Function):
    """An all-to-all whose gradient is one, too."""

    @staticmethod
    def forward(ctx: Any, clock: _Clock, sent: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
        ctx.clock = clock
        return clock.exchanged(sent)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, torch.Tensor]:  # noqa: ANN401
        return None, ctx.clock.exchanged(gradients[0])


class _Layer(nn.Module):
    """Attention, and experts of whom each rank has one; tokens go to them in turn."""

    def __init__(self, width: int, clock: _Clock, ranks: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.expert = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self._clock, self._ranks = clock, ranks

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return tokens, shape (batch, sequence, width) as given."""
        batch, sequence, width = tokens.shape
        parts = self.mixed(self.before(tokens)).view(batch, sequence, 3, _HEADS, width // _HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        tokens = tokens + self.joined(seen.transpose(1, 2).reshape(batch, sequence, width))
        flat = self.between(tokens).reshape(-1, width)
        # Each rank gets as many tokens as any other, whatever their number is.
        rest = -len(flat) % self._ranks
        sent = nn.functional.pad(flat, (0, 0, 0, rest))
        there: Any = _Exchange.apply(self._clock, sent)  # type: ignore[no-untyped-call]
        back: Any = _Exchange.apply(self._clock, self.expert(there))  # type: ignore[no-untyped-call]
        out: torch.Tensor = tokens + back[: len(flat)].view_as(tokens)
        return out


def train(
    device: Device, *, width: int, layers: int, batch: int, sequence: int, steps: int
) -> Steps:
    """Train in the default process group; all ranks call it together.

    Parameters
    ----------
    device
        This rank's.
    width, layers, batch, sequence
        Of the model and its input.
    steps
        How many are timed.
    """
    ranks = distributed.get_world_size()
    torch.manual_seed(SEED)
    clock = _Clock(device, ranks)
    model = nn.Sequential(*(_Layer(width, clock, ranks) for _ in range(layers))).to(device.name)
    tokens = torch.randn(batch, sequence, width).to(device.name)
    shared = [p for name, p in model.named_parameters() if "expert" not in name]
    computing, bandwidths = [], []
    for turn in range(_WARM_UPS + steps):
        clock.durations, clock.carried = [], 0.0
        synchronize(device)
        start = time.perf_counter()
        _step(model, tokens, shared, clock, ranks)
        synchronize(device)
        taken = time.perf_counter() - start
        waited = torch.tensor(clock.durations, dtype=torch.float64, device=device.name)
        own = float(waited.sum())
        distributed.all_reduce(waited, distributed.ReduceOp.MIN)
        if turn >= _WARM_UPS:
            computing.append(taken - own)
            bandwidths.append(clock.carried / max(float(waited.sum()), 1e-9) / 1e9)
    return Steps(median(computing), median(bandwidths), _equal(shared, device))


def _step(
    model: nn.Module,
    tokens: torch.Tensor,
    shared: list[nn.Parameter],
    clock: _Clock,
    ranks: int,
) -> None:
    model.zero_grad(set_to_none=True)
    loss = (model(tokens) - tokens).square().mean()
    loss.backward()
    gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in shared]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    clock.timed(lambda: distributed.all_reduce(flat), flat.numel() * flat.element_size(), 2)
    with torch.no_grad():
        place = 0
        for parameter in shared:
            part = flat[place : place + parameter.numel()].view_as(parameter)
            parameter.sub_(part, alpha=_LEARNING_RATE / ranks)
            place += parameter.numel()
        for name, parameter in model.named_parameters():
            if "expert" in name and parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=_LEARNING_RATE)


def _equal(shared: list[nn.Parameter], device: Device) -> bool:
    """Return whether the bits of the shared parameters are the same on all ranks."""
    bits = [int(p.detach().view(torch.int32).sum(dtype=torch.int64)) for p in shared]
    least = torch.tensor(bits, device=device.name)
    most = least.clone()
    distributed.all_reduce(least, distributed.ReduceOp.MIN)
    distributed.all_reduce(most, distributed.ReduceOp.MAX)
    return bool(torch.equal(least, most))
