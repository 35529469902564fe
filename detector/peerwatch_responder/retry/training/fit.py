"""Trains one recurrent classifier on the vectors of labelled logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from peerwatch_responder.retry.training.networks import make_network

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from peerwatch_responder.retry.model.recurrent import Classifier
    from peerwatch_responder.retry.training.networks import Kind
    from peerwatch_responder.retry.training.settings import FitSettings


def fit_classifier(
    kind: Kind,
    sequences: Sequence[NDArray[np.float32]],
    truths: NDArray[np.bool_],
    settings: FitSettings,
) -> Classifier:
    """Return a classifier that scores logs worth another attempt above zero.

    Both labels count the same, however many logs have each. Global state of torch is left alone.

    Parameters
    ----------
    kind
        Which.
    sequences
        The vectors of each log's lines, float32 ``(lines, size)``; at least one line each.
    truths
        Whether another attempt is worth it.
    settings
        How it is trained.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            return _fit(kind, sequences, truths, settings)
    finally:
        torch.set_num_threads(threads)


def _fit(
    kind: Kind,
    sequences: Sequence[NDArray[np.float32]],
    truths: NDArray[np.bool_],
    settings: FitSettings,
) -> Classifier:
    network = make_network(kind, sequences[0].shape[1], settings.hidden, settings.dropout)
    optimiser = torch.optim.AdamW(network.parameters(), settings.rate, weight_decay=settings.decay)
    target = torch.from_numpy(truths.astype(np.float32))
    share = float(np.clip(truths.mean(), 0.05, 0.95))
    loss_of = nn.BCEWithLogitsLoss(pos_weight=torch.tensor((1 - share) / share))
    lengths = np.array([len(each) for each in sequences])
    rng = np.random.default_rng(settings.seed)
    for _ in range(settings.passes):
        for chosen in _batches(lengths, settings.batch, rng):
            padded = pad_sequence(
                [torch.from_numpy(sequences[at]) for at in chosen], batch_first=True
            )
            scores = network(padded, torch.from_numpy(lengths[chosen]))
            optimiser.zero_grad()
            loss_of(scores, target[torch.from_numpy(chosen)]).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
    return network.export()


def _batches(
    lengths: NDArray[np.int64], size: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Return the examples in batches of similar lengths, in an order drawn at random."""
    order = np.lexsort((rng.random(len(lengths)), lengths))
    batches = [order[start : start + size] for start in range(0, len(order), size)]
    return [batches[at] for at in rng.permutation(len(batches))]
