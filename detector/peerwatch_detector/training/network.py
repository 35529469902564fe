"""The LSTM-VAE in torch, as it is trained; ``lstm_vae.py`` is the same network without torch.

One input per step is Minder's model of one metric; several inputs are its variant INT, one model
of all metrics.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from peerwatch_detector.models.lstm_vae import Weights

# Standard deviation of a latent point about its mean at the start of a training is exp(-3): with
# the usual 1 the decoder learns from noise first, and to ignore the latent point altogether.
# Chosen: a twentieth of what the prior has.
_FIRST_LOG_VARIANCE = -6.0


class Network(nn.Module):
    """The LSTM-VAE in torch; ``forward`` samples, ``embed`` takes the mean.

    Parameters
    ----------
    inputs
        Metrics per step, ``M`` below.
    hidden, latent
        Sizes; those of the paper.
    """

    def __init__(self, inputs: int = 1, hidden: int = 4, latent: int = 8) -> None:
        super().__init__()
        self.encoder = nn.LSTM(inputs, hidden, batch_first=True)
        self.mean = nn.Linear(hidden, latent)
        self.log_variance = nn.Linear(hidden, latent)
        self.expand = nn.Linear(latent, hidden)
        self.decoder = nn.LSTM(hidden, hidden, batch_first=True)
        self.output = nn.Linear(hidden, inputs)

    @torch.no_grad()
    def start(self, levels: Tensor, generator: torch.Generator) -> None:
        """Draw the first weights.

        Windows of GPU activities swing over the whole scale from sample to sample. With torch's
        own first weights most trainings get stuck where such a window is rebuilt as its mean:
        states fade within eight steps. Orthogonal recurrent weights and gates that forget little
        carry them through.

        Parameters
        ----------
        levels
            Mean of the training windows by metric, shape (M,); the first output.
        generator
            Source of randomness, on the processor.
        """
        for layer in (self.encoder, self.decoder):
            size, parameters = layer.hidden_size, dict(layer.named_parameters())
            recurrent = parameters["weight_hh_l0"]
            for gate in range(0, 4 * size, size):
                nn.init.orthogonal_(recurrent[gate : gate + size], generator=generator)
            nn.init.xavier_uniform_(parameters["weight_ih_l0"], generator=generator)
            parameters["bias_ih_l0"].zero_()
            parameters["bias_hh_l0"].zero_()
            parameters["bias_ih_l0"][size : 2 * size] = 1.0
        for linear in (self.mean, self.log_variance, self.expand, self.output):
            nn.init.kaiming_uniform_(linear.weight, a=5**0.5, generator=generator)
            linear.bias.zero_()
        self.log_variance.bias.fill_(_FIRST_LOG_VARIANCE)
        self.output.bias.copy_(levels)

    def encode(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log variance, (B, L) each, of windows (B, w, M)."""
        _, (hidden, _) = self.encoder(windows)
        return self.mean(hidden[-1]), self.log_variance(hidden[-1])

    def decode(self, latent: Tensor, length: int) -> Tensor:
        """Return windows (B, w, M) of latent points (B, L)."""
        repeated = self.expand(latent).unsqueeze(1).expand(-1, length, -1)
        decoded, _ = self.decoder(repeated)
        result: Tensor = self.output(decoded)
        return result

    def forward(self, windows: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sampled reconstruction (B, w, M), mean and log variance (B, L).

        ``noise`` is standard normal, shape (B, L).
        """
        mean, log_variance = self.encode(windows)
        latent = mean + torch.exp(0.5 * log_variance) * noise
        return self.decode(latent, windows.shape[1]), mean, log_variance

    def embed(self, windows: Tensor) -> Tensor:
        """Return the deterministic reconstruction (B, w, M)."""
        return self.decode(self.encode(windows)[0], windows.shape[1])


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
