"""The recurrent classifiers as torch trains them, and their weights for NumPy."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from peerwatch_responder.retry.model.recurrent import AttentionGru, Classifier, Lstm

Kind = Literal["lstm", "gru"]


class LstmNetwork(nn.Module):
    """An LSTM whose last state is scored.

    Parameters
    ----------
    size, hidden
        Of a line's vector, and of the state.
    dropout
        Share of the state that is left out in training.
    """

    def __init__(self, size: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.lstm = nn.LSTM(size, hidden, batch_first=True)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(hidden, 1)

    def forward(self, lines: Tensor, lengths: Tensor) -> Tensor:
        """Return the score of each log of a batch, ``(logs,)``."""
        packed = pack_padded_sequence(lines, lengths, batch_first=True, enforce_sorted=False)
        _, (state, _) = self.lstm(packed)
        scores: Tensor = self.out(self.drop(state[-1])).squeeze(1)
        return scores

    def export(self) -> Classifier:
        """Return the same for NumPy."""
        part = {name: value.detach().numpy().copy() for name, value in self.named_parameters()}
        bias = part["lstm.bias_ih_l0"] + part["lstm.bias_hh_l0"]
        return Lstm(
            part["lstm.weight_ih_l0"],
            part["lstm.weight_hh_l0"],
            bias,
            part["out.weight"][0],
            part["out.bias"],
        )


class AttentionGruNetwork(nn.Module):
    """A GRU whose states are weighted by attention and scored.

    Parameters
    ----------
    size, hidden, dropout
        As of ``LstmNetwork``.
    """

    def __init__(self, size: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.gru = nn.GRU(size, hidden, batch_first=True)
        self.attention = nn.Linear(hidden, hidden)
        self.context = nn.Linear(hidden, 1, bias=False)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(hidden, 1)

    def forward(self, lines: Tensor, lengths: Tensor) -> Tensor:
        """Return the score of each log of a batch, ``(logs,)``."""
        packed = pack_padded_sequence(lines, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        attention = self.context(torch.tanh(self.attention(states))).squeeze(2)
        beyond = torch.arange(states.shape[1])[None, :] >= lengths[:, None]
        shares = attention.masked_fill(beyond, float("-inf")).softmax(dim=1)
        mean = (shares[:, :, None] * states).sum(dim=1)
        scores: Tensor = self.out(self.drop(mean)).squeeze(1)
        return scores

    def export(self) -> Classifier:
        """Return the same for NumPy."""
        part = {name: value.detach().numpy().copy() for name, value in self.named_parameters()}
        return AttentionGru(
            part["gru.weight_ih_l0"],
            part["gru.weight_hh_l0"],
            part["gru.bias_ih_l0"],
            part["gru.bias_hh_l0"],
            part["attention.weight"],
            part["attention.bias"],
            part["context.weight"][0],
            part["out.weight"][0],
            part["out.bias"],
        )


Network = LstmNetwork | AttentionGruNetwork


def make_network(kind: Kind, size: int, hidden: int, dropout: float) -> Network:
    """Return a network with first weights from torch's generator."""
    made: type[Network] = LstmNetwork if kind == "lstm" else AttentionGruNetwork
    return made(size, hidden, dropout)
