"""Trains one LSTM-VAE: of one metric, or of all metrics together (INT).

The loss is Minder's: reconstruction error plus the Kullback-Leibler term of a VAE. A healthy
range alone would teach the model only the healthy level, and it would then map every faulty
window back to it and hide the fault; a share of the windows is therefore drawn from constant
levels and ramps over the whole scaled range, with the metric's own noise on top.

Two things make a model unusable. It rebuilds healthy windows it has not seen too badly: a window
of eight steps passes through the four numbers of the encoder's state, so windows that are noise
from step to step keep an error of about half that noise however long the training; the limit is
therefore a share of the windows' own variance, which a model that only knows the mean cannot
reach. And it moves levels: the mean of a window must come back wherever on the scale it lies, or
a fault would be drawn towards health.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from peerwatch_detector.errors import TrainingError
from peerwatch_detector.models.lstm_vae import Weights
from peerwatch_detector.training.examples import (
    Windows,
    check,
    fingerprint,
    split,
    synthetic_windows,
)
from peerwatch_detector.training.network import Network, export

# A state of a training that a checkpoint can hold: tensors and plain values.
State = dict[str, Any]

# Steps, of some milliseconds each. Chosen: progress moves several times a second, and what is
# interrupted does less than a second's work again.
_REPORT_EVERY = 25
_KEEP_EVERY = 100


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """How a model is trained.

    Parameters
    ----------
    steps, batch_size, learning_rate
        Of the Adam optimiser; the learning rate falls to a hundredth along a cosine. Steps, not
        passes over the data: a short range needs as many of them as a long one.
    largest_gradient
        Norm that gradients are cut to: one batch of swings must not undo what was learned.
    divergence_weight
        Weight of the Kullback-Leibler term; small, so that the reconstruction error reaches the
        order of 1e-4 that Minder asks for.
    attempts
        A model that is not usable is trained again from other first weights, so often in all.
    hidden, latent
        Sizes of the model; those of the paper.
    most_windows
        At most this many real windows are used, drawn at random.
    least_windows
        Fewer real windows than this are refused.
    largest_error
        A mean squared error of held-out windows up to this is small enough whatever their variance.
    largest_share
        Above it, the largest share of the held-out windows' variance that may be lost.
    largest_level_error
        Largest mean squared error of the means of windows from all over the scale; 7 % of the
        scale off, as far as the minimum effect sizes that matter are.
    seed
        Makes a training repeatable.
    """

    steps: int = 3000
    batch_size: int = 256
    learning_rate: float = 0.02
    largest_gradient: float = 1.0
    divergence_weight: float = 1e-5
    attempts: int = 3
    hidden: int = 4
    latent: int = 8
    most_windows: int = 16_384
    least_windows: int = 200
    largest_error: float = 5e-4
    largest_share: float = 0.25
    largest_level_error: float = 5e-3
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Quality:
    """What a trained model makes of windows it has not seen.

    Parameters
    ----------
    error
        Mean squared error of held-out windows.
    variance
        Of the same windows about their mean.
    level_error
        Mean squared error of the means of windows drawn from all over the scale.
    """

    error: float
    variance: float
    level_error: float

    def fault(self, options: TrainingOptions) -> str:
        """Return why the model is not usable, or nothing."""
        limit = max(options.largest_error, options.largest_share * self.variance)
        if not self.error <= limit:
            return (
                f"rebuilds held-out windows with a mean squared error of {self.error:.1e} at a "
                f"variance of {self.variance:.1e}, at most {limit:.1e} is usable"
            )
        if not self.level_error <= options.largest_level_error:
            return (
                f"moves the levels of windows with a mean squared error of {self.level_error:.1e}, "
                f"at most {options.largest_level_error:.1e} is usable"
            )
        return ""


@dataclass(frozen=True, slots=True)
class Trained:
    """Weights, their quality, real windows used and the fingerprint of all windows."""

    weights: Weights
    quality: Quality
    windows: int
    data_fingerprint: str


def choose_device(wanted: Literal["auto", "cpu", "cuda"]) -> str:
    """Return ``cpu`` or ``cuda``.

    Raises
    ------
    TrainingError
        If CUDA is asked for and torch finds none.
    """
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        why = "is built without CUDA" if torch.version.cuda is None else "finds no usable GPU"
        raise TrainingError(
            f"--device cuda: torch {torch.__version__} {why}; take --device cpu, or install a "
            "torch with CUDA and check `nvidia-smi`."
        )
    return "cuda" if available and wanted != "cpu" else "cpu"


def train_model(
    windows: Windows,
    options: TrainingOptions,
    progress: Callable[[int, int, float], None],
    *,
    device: str = "cpu",
    state: State | None = None,
    keep: Callable[[State], None] | None = None,
) -> Trained:
    """Train one model.

    Parameters
    ----------
    windows
        Healthy scaled windows in the order of time, shape (n, window_length) or, of several
        metrics, (n, window_length, n_metrics); no NaN.
    options
        See ``TrainingOptions``.
    progress
        Called now and then with (step, steps, loss); starts again at 0 with each attempt.
    device
        What torch computes on.
    state
        What ``keep`` got last from a training of the same windows, options and device; goes on
        from there, and ends at the very same weights.
    keep
        Called now and then with what is needed to go on; it changes with the next step, so it
        must be written down or copied at once.

    Raises
    ------
    TrainingError
        If there are too few windows, values that are not finite or outside 0 to 1, or if the
        model did not learn to rebuild windows it had not seen.
    """
    if options.steps < 1:
        raise TrainingError(
            f"{options.steps!r} training steps are too few; give --steps 1 or more."
        )
    check(windows, options.least_windows)
    cube = windows if windows.ndim == 3 else windows[:, :, None]
    rng = np.random.default_rng(options.seed)
    learned, held_out = split(cube, options.most_windows, rng)
    examples = np.concatenate([learned, synthetic_windows(learned, rng)])
    unseen = synthetic_windows(held_out, rng)
    with _one_thread():
        fit = _Fit(torch.from_numpy(examples).to(device), options)
        if state is not None:
            fit.restore(state)
        while True:
            fit.run(progress, keep)
            quality = _quality(fit.network, held_out, unseen)
            fault = quality.fault(options)
            if not fault or fit.attempt + 1 >= options.attempts:
                break
            fit.begin(fit.attempt + 1)
    if fault:
        tries = "" if options.attempts == 1 else f" (the last of {options.attempts} attempts)"
        raise TrainingError(
            f"The model{tries} {fault}; give more --steps or a longer healthy range, or do "
            "without a model for it."
        )
    return Trained(export(fit.network), quality, len(learned) + len(held_out), fingerprint(windows))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Two threads collapse when another process wants the second core; the model is tiny anyway."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Fit:
    """The optimisation, one step after the other, from which a state can be taken at any step.

    All randomness is drawn on the processor from a generator of its own, so that the state is
    whole and torch's other users see nothing of it.
    """

    def __init__(self, examples: Tensor, options: TrainingOptions) -> None:
        self.examples = examples
        self.options = options
        self.generator = torch.Generator()
        with torch.random.fork_rng(devices=[]):
            self.network = Network(examples.shape[2], options.hidden, options.latent)
        self.network.to(examples.device)
        self.begin(0)

    def begin(self, attempt: int) -> None:
        """Start with first weights that belong to the attempt."""
        self.attempt, self.step = attempt, 0
        self.generator.manual_seed(self.options.seed + 1_000_003 * attempt)
        self.network.cpu().start(self.examples.mean(dim=(0, 1)).cpu(), self.generator)
        self.network.to(self.examples.device)
        self.optimiser = torch.optim.Adam(self.network.parameters(), self.options.learning_rate)

    def state(self) -> State:
        """Return all that the rest of the training depends on."""
        return {
            "attempt": self.attempt,
            "step": self.step,
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "generator": self.generator.get_state(),
        }

    def restore(self, state: State) -> None:
        """Stand where the training stood that gave ``state``."""
        self.attempt, self.step = state["attempt"], state["step"]
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.generator.set_state(state["generator"])

    def run(
        self, progress: Callable[[int, int, float], None], keep: Callable[[State], None] | None
    ) -> None:
        """Take all steps that are left."""
        steps = self.options.steps
        while self.step < steps:
            loss = self._advance()
            if self.step % _REPORT_EVERY == 0 or self.step == steps:
                progress(self.step, steps, float(loss))
            if keep and (self.step % _KEEP_EVERY == 0 or self.step == steps):
                keep(self.state())

    def _advance(self) -> Tensor:
        options, device = self.options, self.examples.device
        fallen = 0.5 - 0.5 * math.cos(math.pi * self.step / options.steps)
        for group in self.optimiser.param_groups:
            group["lr"] = options.learning_rate * (1 - 0.99 * fallen)
        draw = torch.randint(
            len(self.examples), (options.batch_size,), generator=self.generator
        ).to(device)
        noise = torch.randn((options.batch_size, options.latent), generator=self.generator)
        windows = self.examples[draw]
        rebuilt, mean, log_variance = self.network(windows, noise.to(device))
        divergence = -0.5 * torch.mean(1 + log_variance - mean**2 - log_variance.exp())
        loss = torch.mean((rebuilt - windows) ** 2) + options.divergence_weight * divergence
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), options.largest_gradient)
        self.optimiser.step()
        self.step += 1
        return loss.detach()


def _quality(network: Network, held_out: Windows, unseen: Windows) -> Quality:
    device = next(network.parameters()).device
    with torch.no_grad():
        target, levels = (torch.from_numpy(part).to(device) for part in (held_out, unseen))
        error = torch.mean((network.embed(target) - target) ** 2)
        moved = (network.embed(levels) - levels).mean(dim=1)
        spread = torch.mean((target - target.mean(dim=(0, 1))) ** 2)
    return Quality(float(error), float(spread), float(torch.mean(moved**2)))
