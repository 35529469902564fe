"""Model bundles: one ``.npz`` file with the weights of every metric and what they were made for."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal

import numpy as np

from peerwatch_detector.errors import DAMAGED_ARCHIVE, ModelError
from peerwatch_detector.models.base import Model
from peerwatch_detector.models.identity import Identity
from peerwatch_detector.models.lstm_vae import LstmVae, Weights

FORMAT = 1


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What a model was trained for and on.

    Parameters
    ----------
    metric, unit
        The detection metric.
    bounds
        Min-Max limits the training data was scaled by; the detector refuses others.
    window_length
        Samples per window.
    windows
        Training windows.
    data_fingerprint
        Hash of the training data.
    reconstruction_error
        Mean squared error on windows held out of the training.
    """

    metric: str
    unit: str
    bounds: tuple[float, float]
    window_length: int
    windows: int
    data_fingerprint: str
    reconstruction_error: float


@dataclass(frozen=True, slots=True)
class Bundle:
    """Trained models by metric name."""

    weights: dict[str, Weights]
    cards: dict[str, ModelCard]

    def save(self, path: Path) -> None:
        """Write the bundle; the file appears whole or not at all.

        Raises
        ------
        ModelError
            If the file cannot be written.
        """
        arrays = {
            f"{metric}/{one.name}": getattr(weights, one.name)
            for metric, weights in self.weights.items()
            for one in fields(weights)
        }
        meta = {"format": FORMAT, "models": [asdict(card) for card in self.cards.values()]}
        partial = path.with_name(path.name + ".partial")
        try:
            with partial.open("wb") as file:
                np.savez_compressed(file, meta=np.array(json.dumps(meta)), **arrays)
            partial.replace(path)
        except OSError as error:
            raise ModelError(f"{path}: cannot be written: {error.strerror}.") from error

    def model(
        self,
        metric: str,
        bounds: tuple[float, float],
        window_length: int,
        embedding: Literal["reconstruction", "latent"],
    ) -> Model:
        """Return the model of a metric, or ``Identity`` if the bundle has none.

        Raises
        ------
        ModelError
            If the model was trained for other bounds or another window length.
        """
        if metric not in self.weights:
            return Identity()
        card = self.cards[metric]
        for name, trained, wanted in (
            ("bounds", tuple(card.bounds), tuple(bounds)),
            ("window_length", card.window_length, window_length),
        ):
            if trained != wanted:
                raise ModelError(
                    f"The model of metric {metric!r} was trained with {name} {trained!r}, the "
                    f"configuration says {wanted!r}; train again or set {name} back."
                )
        return LstmVae(self.weights[metric], embedding)


EMPTY = Bundle({}, {})


def load_bundle(path: Path) -> Bundle:
    """Read a bundle written by ``peerwatch-detector train``.

    Raises
    ------
    ModelError
        If the file is missing, not a bundle, or of another format.
    """
    try:
        # numpy leaves a file open that it opened itself and found to be broken.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
            meta = json.loads(str(data["meta"]))
            if meta["format"] != FORMAT:
                raise ModelError(
                    f"{path}: model bundle of format {meta['format']!r}, this version reads "
                    f"{FORMAT}; train again."
                )
            cards = {
                card["metric"]: ModelCard(**(card | {"bounds": tuple(card["bounds"])}))
                for card in meta["models"]
            }
            weights = {
                metric: Weights(
                    **{one.name: data[f"{metric}/{one.name}"] for one in fields(Weights)}
                )
                for metric in cards
            }
    except OSError as error:
        raise ModelError(
            f"{path}: cannot be read: {error.strerror or error}; write it with "
            "`peerwatch-detector train --output FILE`."
        ) from error
    except DAMAGED_ARCHIVE as error:
        raise ModelError(f"{path}: is not a model bundle: {error}.") from error
    return Bundle(weights, cards)
