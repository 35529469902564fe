"""Model bundles: one ``.npz`` file with the weights of every metric and what they were made for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from peerwatch_detector import __version__
from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.errors import DAMAGED_ARCHIVE, ModelError
from peerwatch_detector.models.base import INTEGRATED, Model
from peerwatch_detector.models.identity import Identity
from peerwatch_detector.models.integrated import IntegratedLstmVae
from peerwatch_detector.models.lstm_vae import LstmVae, Weights

# Counts the layouts of the file.
FORMAT = 2
# The shipped bundle has 57 kB unpacked; a damaged or foreign file of 1 MB may have gigabytes.
# Chosen: a thousand times the shipped one.
_MOST_BYTES = 1 << 26

Embedding = Literal["reconstruction", "latent"]


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
        Windows trained and tested on.
    data_fingerprint
        Hash of the training data.
    reconstruction_error
        Mean squared error on windows held out of the training.
    variance
        Of the same windows; what a model would err that only knows their mean.
    level_error
        Mean squared error of the means of windows from all over the scale.
    """

    metric: str
    unit: str
    bounds: tuple[float, float]
    window_length: int
    windows: int
    data_fingerprint: str
    reconstruction_error: float
    variance: float
    level_error: float

    def misfit(self, metric: MetricConfig, window_length: int) -> str:
        """Return why the model is not one for this metric as configured, or nothing."""
        return _differing(
            f"metric {metric.name!r}",
            unit=(self.unit, metric.unit),
            bounds=(self.bounds, tuple(metric.bounds)),
            window_length=(self.window_length, window_length),
        )


@dataclass(frozen=True, slots=True)
class IntegratedCard:
    """What the model of all metrics was trained for and on.

    Parameters
    ----------
    metrics, units, bounds, levels
        Of every input, in order; a level is the scaled mean of the metric.
    window_length, windows, data_fingerprint, reconstruction_error, variance, level_error
        See ``ModelCard``.
    """

    metrics: tuple[str, ...]
    units: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]
    levels: tuple[float, ...]
    window_length: int
    windows: int
    data_fingerprint: str
    reconstruction_error: float
    variance: float
    level_error: float

    def misfit(self, metrics: Iterable[MetricConfig], window_length: int) -> str:
        """Return why the model is not one for these metrics as configured, or nothing."""
        for metric in metrics:
            if metric.name not in self.metrics:
                return (
                    f"The integrated model knows no metric {metric.name!r}, only "
                    f"{', '.join(self.metrics)}; train again or set metrics.enabled to them."
                )
            index = self.metrics.index(metric.name)
            if reason := _differing(
                f"all metrics together, {metric.name!r} among them,",
                unit=(self.units[index], metric.unit),
                bounds=(self.bounds[index], tuple(metric.bounds)),
                window_length=(self.window_length, window_length),
            ):
                return reason
        return ""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Trained models by metric name.

    Parameters
    ----------
    weights, cards
        By metric; the weights of the model of all metrics under ``INTEGRATED``.
    integrated
        The card of the model of all metrics, if there is one.
    options
        How the models were trained.
    package_version
        Of peerwatch, when the bundle was made.
    """

    weights: dict[str, Weights]
    cards: dict[str, ModelCard]
    integrated: IntegratedCard | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    package_version: str = __version__

    def save(self, path: Path) -> None:
        """Write the bundle; the file appears whole or not at all.

        Equal bundles are equal files, byte by byte.

        Raises
        ------
        ModelError
            If the file cannot be written.
        """
        arrays: dict[str, Any] = {
            f"{metric}/{parameter.name}": getattr(weights, parameter.name)
            for metric, weights in self.weights.items()
            for parameter in fields(weights)
        }
        meta = {
            "format": FORMAT,
            "package_version": self.package_version,
            "options": dict(self.options),
            "models": [asdict(card) for card in self.cards.values()],
            "integrated": None if self.integrated is None else asdict(self.integrated),
        }
        partial = path.with_name(path.name + ".partial")
        try:
            with partial.open("wb") as file:
                np.savez_compressed(file, meta=np.array(json.dumps(meta)), **arrays)
            partial.replace(path)
        except OSError as error:
            raise ModelError(f"{path}: cannot be written: {error.strerror}.") from error

    def models(self, config: DetectorConfig, metrics: Iterable[MetricConfig]) -> dict[str, Model]:
        """Return the models a configuration compares these metrics by.

        Parameters
        ----------
        config
            Window length, embedding and method.
        metrics
            Those compared, as configured.

        Returns
        -------
        dict[str, Model]
            By metric, ``Identity`` where the bundle has none; for ``minder.join: integrated`` the
            model of all metrics under ``INTEGRATED`` too.

        Raises
        ------
        ModelError
            If a model was trained for something else, or if the integrated one is missing.
        """
        wanted, length = tuple(metrics), config.window_length
        embedding = config.similarity.embedding
        found: dict[str, Model] = {}
        for metric in wanted:
            card = self.cards.get(metric.name)
            if card is None:
                found[metric.name] = Identity()
                continue
            if reason := card.misfit(metric, length):
                raise ModelError(reason)
            found[metric.name] = LstmVae(self.weights[metric.name], embedding)
        if config.method_config.needs_integrated_model:
            card_of_all = self.integrated
            if card_of_all is None:
                raise ModelError(
                    "minder.join integrated needs a model of all metrics, and the bundle has "
                    "none that fits; train one with `peerwatch-detector train --integrated`."
                )
            if reason := card_of_all.misfit(wanted, length):
                raise ModelError(reason)
            levels = dict(zip(card_of_all.metrics, card_of_all.levels, strict=True))
            found[INTEGRATED] = IntegratedLstmVae(self.weights[INTEGRATED], embedding, levels)
        return found

    def model(
        self,
        metric: str,
        bounds: tuple[float, float],
        window_length: int,
        embedding: Embedding,
    ) -> Model:
        """Return the model of a metric, or ``Identity`` if the bundle has none.

        Raises
        ------
        ModelError
            If the model was trained for other bounds or another window length.
        """
        if metric not in self.cards:
            return Identity()
        card = self.cards[metric]
        if reason := _differing(
            f"metric {metric!r}",
            bounds=(card.bounds, tuple(bounds)),
            window_length=(card.window_length, window_length),
        ):
            raise ModelError(reason)
        return LstmVae(self.weights[metric], embedding)

    def fitting(
        self, metrics: Iterable[MetricConfig], window_length: int
    ) -> tuple[Bundle, tuple[str, ...]]:
        """Return the bundle without the models that do not fit, and why they do not."""
        known = {metric.name: metric for metric in metrics}
        cards, reasons = {}, []
        for name, card in self.cards.items():
            reason = card.misfit(known[name], window_length) if name in known else ""
            if reason:
                reasons.append(reason)
            else:
                cards[name] = card
        integrated = self.integrated
        if integrated is not None:
            inputs = [known[name] for name in integrated.metrics if name in known]
            if reason := integrated.misfit(inputs, window_length):
                reasons.append(reason)
                integrated = None
        kept = cards.keys() | ({INTEGRATED} if integrated else set())
        weights = {name: weights for name, weights in self.weights.items() if name in kept}
        rest = replace(self, weights=weights, cards=cards, integrated=integrated)
        return rest, tuple(reasons)


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
            unpacked = sum(entry.file_size for entry in data.zip.infolist())
            if unpacked > _MOST_BYTES:
                raise ModelError(
                    f"{path}: is not a model bundle: it holds {unpacked} bytes unpacked, and a "
                    f"bundle {_MOST_BYTES} at most."
                )
            meta = json.loads(str(data["meta"]))
            if meta["format"] != FORMAT:
                raise ModelError(
                    f"{path}: model bundle of format {meta['format']!r}, written by peerwatch "
                    f"{meta.get('package_version', 'before 0.1')}; this version, {__version__}, "
                    f"reads format {FORMAT}; train again."
                )
            cards = {card["metric"]: _card(card) for card in meta["models"]}
            about = meta["integrated"]
            integrated = None if about is None else _integrated_card(about)
            weights = {name: _weights(data, name, 1) for name in cards}
            if integrated:
                weights[INTEGRATED] = _weights(data, INTEGRATED, len(integrated.metrics))
            options, version = dict(meta["options"]), str(meta["package_version"])
    except OSError as error:
        raise ModelError(
            f"{path}: cannot be read: {error.strerror or error}; write it with "
            "`peerwatch-detector train --output FILE`."
        ) from error
    except DAMAGED_ARCHIVE as error:
        raise ModelError(f"{path}: is not a model bundle: {error}.") from error
    return Bundle(weights, cards, integrated, options, version)


def _card(about: dict[str, Any]) -> ModelCard:
    low, high = about["bounds"]
    return ModelCard(**(about | {"bounds": (float(low), float(high))}))


def _integrated_card(about: dict[str, Any]) -> IntegratedCard:
    bounds = tuple((float(low), float(high)) for low, high in about["bounds"])
    lists = {name: tuple(about[name]) for name in ("metrics", "units", "levels")}
    card = IntegratedCard(**(about | lists | {"bounds": bounds}))
    if len({len(values) for values in (card.metrics, card.units, card.bounds, card.levels)}) != 1:
        raise ValueError("the card of the integrated model contradicts itself")
    return card


def _weights(data: Mapping[str, Any], name: str, inputs: int) -> Weights:
    weights = Weights(
        **{
            parameter.name: np.asarray(data[f"{name}/{parameter.name}"], dtype=np.float32)
            for parameter in fields(Weights)
        }
    )
    if wrong := weights.wrong():
        raise ValueError(f"{name}/{wrong} does not go with the other weights")
    if weights.inputs != inputs:
        raise ValueError(f"{name} reads {weights.inputs} metrics and not {inputs}")
    return weights


def _differing(of_what: str, **pairs: tuple[object, object]) -> str:
    for name, (trained, wanted) in pairs.items():
        if trained != wanted:
            return (
                f"The model of {of_what} was trained with {name} {trained!r}, the "
                f"configuration says {wanted!r}; train again or set {name} back."
            )
    return ""
