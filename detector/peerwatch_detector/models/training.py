"""Trains the LSTM-VAE of one metric; the only module that imports torch.

The loss is Minder's: reconstruction error plus the Kullback-Leibler term of a VAE. A healthy
range alone would teach the model only the healthy level, and it would then map every faulty
window back to it and hide the fault; a share of the windows is therefore drawn from constant
levels and ramps over the whole scaled range, with the metric's own noise on top.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from peerwatch_detector.errors import TrainingError
from peerwatch_detector.models.lstm_vae import Weights

_REPORT_EVERY = 50


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """How a model is trained.

    Parameters
    ----------
    steps, batch_size, learning_rate
        Of the Adam optimiser; the learning rate falls to a hundredth along a cosine. Steps, not
        passes over the data: a short range needs as many of them as a long one.
    divergence_weight
        Weight of the Kullback-Leibler term; small, so that the reconstruction error reaches the
        order of 1e-4 that Minder asks for.
    most_windows
        At most this many real windows are used, drawn at random.
    least_windows
        Fewer real windows than this are refused.
    largest_error
        A model that rebuilds held-out windows worse than this mean squared error is refused: it
        would map a fault back to health and hide it.
    seed
        Makes a training repeatable.
    """

    steps: int = 1200
    batch_size: int = 128
    learning_rate: float = 0.02
    divergence_weight: float = 1e-5
    most_windows: int = 16_384
    least_windows: int = 200
    largest_error: float = 5e-3
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Trained:
    """Weights, held-out mean squared error, windows used and their fingerprint."""

    weights: Weights
    reconstruction_error: float
    windows: int
    data_fingerprint: str


class Network(nn.Module):
    """The LSTM-VAE in torch; ``forward`` samples, ``embed`` takes the mean."""

    def __init__(self, hidden: int = 4, latent: int = 8) -> None:
        super().__init__()
        self.encoder = nn.LSTM(1, hidden, batch_first=True)
        self.mean = nn.Linear(hidden, latent)
        self.log_variance = nn.Linear(hidden, latent)
        self.expand = nn.Linear(latent, hidden)
        self.decoder = nn.LSTM(hidden, hidden, batch_first=True)
        self.output = nn.Linear(hidden, 1)

    def encode(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log variance, (B, L) each, of windows (B, w)."""
        _, (hidden, _) = self.encoder(windows.unsqueeze(-1))
        return self.mean(hidden[-1]), self.log_variance(hidden[-1])

    def decode(self, latent: Tensor, length: int) -> Tensor:
        """Return windows (B, w) of latent points (B, L)."""
        repeated = self.expand(latent).unsqueeze(1).expand(-1, length, -1)
        decoded, _ = self.decoder(repeated)
        result: Tensor = self.output(decoded).squeeze(-1)
        return result

    def forward(self, windows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sampled reconstruction (B, w), mean and log variance (B, L)."""
        mean, log_variance = self.encode(windows)
        latent = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        return self.decode(latent, windows.shape[1]), mean, log_variance

    def embed(self, windows: Tensor) -> Tensor:
        """Return the deterministic reconstruction (B, w)."""
        return self.decode(self.encode(windows)[0], windows.shape[1])


def train_model(
    windows: NDArray[np.float32],
    options: TrainingOptions,
    progress: Callable[[int, int, float], None],
) -> Trained:
    """Train the model of one metric.

    Parameters
    ----------
    windows
        Healthy scaled windows, shape (n, window_length), no NaN.
    options
        See ``TrainingOptions``.
    progress
        Called now and then with (step, steps, loss).

    Raises
    ------
    TrainingError
        If there are too few windows, values that are not finite or outside 0 to 1, or if the
        model did not learn to rebuild windows it had not seen.
    """
    _check(windows, options)
    rng = np.random.default_rng(options.seed)
    real = windows[rng.permutation(len(windows))[: options.most_windows]]
    held_out = max(1, len(real) // 10)
    examples = np.concatenate([real[held_out:], synthetic_windows(real, rng)])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    threads = torch.get_num_threads()
    # Two threads collapse when another process wants the second core; the model is tiny anyway.
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(options.seed)
            network = Network().to(device)
            _fit(network, torch.from_numpy(examples).to(device), options, progress)
        with torch.no_grad():
            target = torch.from_numpy(real[:held_out]).to(device)
            error = float(torch.mean((network.embed(target) - target) ** 2))
    finally:
        torch.set_num_threads(threads)
    if not error <= options.largest_error:
        raise TrainingError(
            f"The model rebuilds held-out windows with a mean squared error of {error:.1e}, at "
            f"most {options.largest_error:.1e} is usable; give more --steps or a longer range."
        )
    fingerprint = hashlib.sha256(np.ascontiguousarray(windows).tobytes()).hexdigest()[:12]
    return Trained(export(network), error, len(real), fingerprint)


def synthetic_windows(
    real: NDArray[np.float32], rng: np.random.Generator, share: float = 0.5
) -> NDArray[np.float32]:
    """Return levels, ramps and steps over the whole scaled range, with the data's own noise.

    Parameters
    ----------
    real
        Windows, shape (n, w).
    rng
        Source of randomness.
    share
        Synthetic windows per real window.
    """
    count, width = max(1024, int(len(real) * share)), real.shape[1]
    start, stop = rng.uniform(0, 1, (2, count, 1))
    position = np.linspace(0, 1, width)[None, :]
    edge = rng.integers(1, width, (count, 1))
    ramps = start + (stop - start) * position
    steps = np.where(np.arange(width)[None, :] < edge, start, stop)
    kind = rng.integers(0, 4, (count, 1))
    shapes = np.where(
        kind == 0, ramps, np.where(kind == 1, steps, np.broadcast_to(start, ramps.shape))
    )
    picked = real[rng.integers(0, len(real), count)]
    noise = picked - picked.mean(axis=1, keepdims=True)
    synthetic: NDArray[np.float32] = np.clip(shapes + noise, 0, 1).astype(np.float32)
    return synthetic


def export(network: Network) -> Weights:
    """Return the network's parameters as numpy arrays, the LSTMs' two biases added up."""
    parameters = network.state_dict()

    def array(*names: str) -> NDArray[np.float32]:
        total = torch.stack([parameters[name] for name in names]).sum(dim=0)
        result: NDArray[np.float32] = np.asarray(total.cpu().numpy(), dtype=np.float32)
        return result

    return Weights(
        encoder_input=array("encoder.weight_ih_l0"),
        encoder_hidden=array("encoder.weight_hh_l0"),
        encoder_bias=array("encoder.bias_ih_l0", "encoder.bias_hh_l0"),
        mean_weight=array("mean.weight"),
        mean_bias=array("mean.bias"),
        expand_weight=array("expand.weight"),
        expand_bias=array("expand.bias"),
        decoder_input=array("decoder.weight_ih_l0"),
        decoder_hidden=array("decoder.weight_hh_l0"),
        decoder_bias=array("decoder.bias_ih_l0", "decoder.bias_hh_l0"),
        output_weight=array("output.weight"),
        output_bias=array("output.bias"),
    )


def _check(windows: NDArray[np.float32], options: TrainingOptions) -> None:
    if options.steps < 1:
        raise TrainingError(
            f"{options.steps!r} training steps are too few; give --steps 1 or more."
        )
    if len(windows) < options.least_windows:
        raise TrainingError(
            f"{len(windows)} complete windows are too few to train on, at least "
            f"{options.least_windows} are needed; take a longer healthy range or more nodes."
        )
    if not np.isfinite(windows).all():
        raise TrainingError("The windows hold values that are not finite; fill or drop them.")
    if windows.min() < 0 or windows.max() > 1:
        raise TrainingError(
            f"The windows reach from {windows.min():g} to {windows.max():g}; scale them to 0..1."
        )


def _fit(
    network: Network,
    examples: Tensor,
    options: TrainingOptions,
    progress: Callable[[int, int, float], None],
) -> None:
    optimiser = torch.optim.Adam(network.parameters(), lr=options.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimiser, options.steps, eta_min=options.learning_rate / 100
    )
    for step in range(1, options.steps + 1):
        batch = torch.randint(len(examples), (options.batch_size,), device=examples.device)
        windows = examples[batch]
        rebuilt, mean, log_variance = network(windows)
        divergence = -0.5 * torch.mean(1 + log_variance - mean**2 - log_variance.exp())
        loss = torch.mean((rebuilt - windows) ** 2) + options.divergence_weight * divergence
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        if step % _REPORT_EVERY == 0 or step == options.steps:
            progress(step, options.steps, float(loss.detach()))
