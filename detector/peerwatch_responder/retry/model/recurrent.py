"""The two recurrent classifiers of Sibylla, forward only: an LSTM, and a GRU with attention.

Both read the vectors of a log's lines in order and give a score, positive where another attempt is
worth it. Equations and order of gates are torch's, in float32; a test holds the two equal to 1e-4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float32]


class Classifier(Protocol):
    """A network that scores a log."""

    def score(self, sequence: Array) -> float:
        """Return the score of a log's lines, float32 ``(lines, size)``; at least one line."""
        ...


@dataclass(frozen=True, slots=True)
class Lstm:
    """Scores by its state after the last line.

    Parameters
    ----------
    of_input, of_state, bias
        Of the gates input, forget, cell and output, one below the other: ``(4 hidden, size)``,
        ``(4 hidden, hidden)`` and ``(4 hidden,)``.
    out, out_bias
        Of the score: ``(hidden,)`` and ``(1,)``.
    """

    of_input: Array
    of_state: Array
    bias: Array
    out: Array
    out_bias: Array

    def score(self, sequence: Array) -> float:
        """Return the score."""
        hidden = self.of_state.shape[1]
        state = cell = np.zeros(hidden, np.float32)
        for line in sequence @ self.of_input.T + self.bias:
            gates = line + self.of_state @ state
            taken, kept, _, shown = _sigmoid(gates).reshape(4, hidden)
            cell = kept * cell + taken * np.tanh(gates[2 * hidden : 3 * hidden])
            state = shown * np.tanh(cell)
        return float(state @ self.out + self.out_bias[0])


@dataclass(frozen=True, slots=True)
class AttentionGru:
    """Scores by a mean of its states, weighted by how much attention each line gets.

    Parameters
    ----------
    of_input, of_state
        Of the gates reset, update and new: ``(3 hidden, size)`` and ``(3 hidden, hidden)``.
    input_bias, state_bias
        ``(3 hidden,)`` each.
    attention, attention_bias, context
        The attention of a state is ``context . tanh(attention state + attention_bias)``:
        ``(hidden, hidden)``, ``(hidden,)`` and ``(hidden,)``.
    out, out_bias
        Of the score: ``(hidden,)`` and ``(1,)``.
    """

    of_input: Array
    of_state: Array
    input_bias: Array
    state_bias: Array
    attention: Array
    attention_bias: Array
    context: Array
    out: Array
    out_bias: Array

    def score(self, sequence: Array) -> float:
        """Return the score."""
        hidden = self.of_state.shape[1]
        state = np.zeros(hidden, np.float32)
        states = np.empty((len(sequence), hidden), np.float32)
        for number, line in enumerate(sequence @ self.of_input.T + self.input_bias):
            own = self.of_state @ state + self.state_bias
            reset, update = _sigmoid(line[: 2 * hidden] + own[: 2 * hidden]).reshape(2, hidden)
            new = np.tanh(line[2 * hidden :] + reset * own[2 * hidden :])
            state = states[number] = (1 - update) * new + update * state
        attention = np.tanh(states @ self.attention.T + self.attention_bias) @ self.context
        shares = np.exp(attention - attention.max())
        mean = (shares / shares.sum()) @ states
        return float(mean @ self.out + self.out_bias[0])


def _sigmoid(values: Array) -> Array:
    # The same function by tanh, which does not overflow.
    half = np.float32(0.5)
    found: Array = half * np.tanh(half * values) + half
    return found
