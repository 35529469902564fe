"""Trains one model per metric, and one of all metrics if wanted, and bundles them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TextIO

import numpy as np
import torch

from peerwatch_detector import __version__
from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.errors import TrainingError
from peerwatch_detector.models.base import INTEGRATED
from peerwatch_detector.models.store import Bundle, IntegratedCard, ModelCard
from peerwatch_detector.training.checkpoint import Checkpoint
from peerwatch_detector.training.examples import fingerprint
from peerwatch_detector.training.fit import (
    Quality,
    Trained,
    TrainingOptions,
    train_model,
)
from peerwatch_detector.training.healthy import HealthyWindows, integrated_metrics
from peerwatch_detector.training.progress import TrainingProgress

# The state of four that is enough for a window of one metric loses half the variance of windows of
# seven; the paper does not say how wide its INT is. Chosen: four times as wide.
_INTEGRATED_SIZE = 16


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """What came of a training.

    Parameters
    ----------
    bundle
        The models that are usable.
    refused
        Why there is no model, by metric.
    """

    bundle: Bundle
    refused: dict[str, str]


def checkpoint_path(output: Path) -> Path:
    """Return where a training with this output keeps how far it is."""
    return output.with_name(output.name + ".checkpoint")


def train_bundle(
    gathered: HealthyWindows,
    config: DetectorConfig,
    options: TrainingOptions,
    out: TextIO,
    *,
    device: str = "cpu",
    checkpoint: Path | None = None,
) -> TrainingRun:
    """Train the models of all gathered metrics.

    Parameters
    ----------
    gathered
        Scaled healthy windows by metric.
    config
        Bounds and units of the metrics.
    options
        How to train.
    out
        Where the progress goes.
    device
        What torch computes on.
    checkpoint
        File to keep the state in and to take it up from; it is left there, for the caller to
        remove when the bundle is safe.

    Returns
    -------
    TrainingRun
        A metric that cannot be trained costs only its own model.

    Raises
    ------
    TrainingError
        If no metric's windows can train a model; says why of each.
    """
    names = [metric.name for metric in config.detection_metrics() if metric.name in gathered]
    names += [INTEGRATED] if INTEGRATED in gathered else []
    kept = Checkpoint(checkpoint or Path(), _key(gathered, config, options, device))
    with TrainingProgress(out, len(names), options.steps) as progress:
        if checkpoint and (note := kept.resume()):
            progress.write(note)
        for metric in config.detection_metrics():
            if metric.name not in gathered:
                progress.write_line(metric.name, "no samples, compared by raw windows")
        for name in names:
            progress.begin(name, _steps_done(name, kept, options))
            if name not in kept.done and name not in kept.refused:
                _train_metric(
                    name, gathered, options, device, kept, progress, keeps=checkpoint is not None
                )
            if name in kept.done:
                progress.end(_result(kept.done[name]))
            else:
                progress.end(f"no model: {kept.refused[name]}")
    if not kept.done:
        reasons = [f"Metric {name!r}: {reason}" for name, reason in kept.refused.items()]
        raise TrainingError("No model could be trained. " + " ".join(reasons))
    return TrainingRun(_bundled(kept.done, gathered, config, options), kept.refused)


def _steps_done(name: str, kept: Checkpoint, options: TrainingOptions) -> int:
    """Return how many steps of a model an earlier training took."""
    if name in kept.done or name in kept.refused:
        return options.steps
    state = kept.state(name)
    return int(state["step"]) if state else 0


def _train_metric(
    name: str,
    gathered: HealthyWindows,
    options: TrainingOptions,
    device: str,
    kept: Checkpoint,
    progress: TrainingProgress,
    *,
    keeps: bool,
) -> None:
    """Train a model and put it, or the reason why there is none, into the checkpoint."""
    try:
        if name in gathered.broken:
            raise TrainingError(gathered.broken[name])
        trained = train_model(
            gathered[name],
            _options_for(name, options),
            lambda step, _, loss: progress.show(step, loss),
            device=device,
            state=kept.state(name),
            keep=(lambda state: kept.keep_state(name, state)) if keeps else None,
        )
    except TrainingError as error:
        kept.refused[name] = str(error)
    else:
        kept.done[name] = trained
    if keeps:
        kept.leave()


def _options_for(name: str, options: TrainingOptions) -> TrainingOptions:
    if name != INTEGRATED:
        return options
    return replace(options, hidden=_INTEGRATED_SIZE, latent=_INTEGRATED_SIZE)


def _result(trained: Trained) -> str:
    quality = trained.quality
    return (
        f"{trained.windows} windows, held-out mean squared error {quality.error:.1e}"
        f"{_share(quality)}"
    )


def _share(quality: Quality) -> str:
    """Return the share of the windows' variance that is lost, in words."""
    if not quality.variance > 0:
        return " (constant)"
    if quality.variance < quality.error:
        return f" (they hardly vary: {quality.variance:.1e})"
    return f" ({quality.error / quality.variance:.1%} of their variance {quality.variance:.1e})"


def _bundled(
    done: dict[str, Trained],
    gathered: HealthyWindows,
    config: DetectorConfig,
    options: TrainingOptions,
) -> Bundle:
    metrics = {metric.name: metric for metric in config.detection_metrics()}
    cards = {
        name: ModelCard(name, metrics[name].unit, metrics[name].bounds, *_facts(trained, config))
        for name, trained in done.items()
        if name != INTEGRATED
    }
    integrated = None
    if INTEGRATED in done:
        inputs = integrated_metrics(config, gathered)
        integrated = IntegratedCard(
            tuple(metric.name for metric in inputs),
            tuple(metric.unit for metric in inputs),
            tuple(metric.bounds for metric in inputs),
            tuple(float(x) for x in gathered[INTEGRATED].mean(axis=(0, 1), dtype=np.float64)),
            *_facts(done[INTEGRATED], config),
        )
    weights = {name: trained.weights for name, trained in done.items()}
    return Bundle(weights, cards, integrated, asdict(options))


def _facts(trained: Trained, config: DetectorConfig) -> tuple[int, int, str, float, float, float]:
    """Return what the cards of single metrics and of all metrics end with."""
    quality = trained.quality
    return (
        config.window_length,
        trained.windows,
        trained.data_fingerprint,
        quality.error,
        quality.variance,
        quality.level_error,
    )


def _key(
    gathered: HealthyWindows, config: DetectorConfig, options: TrainingOptions, device: str
) -> dict[str, str]:
    """Return what the weights depend on, by the words a person would use."""

    def data(metric: MetricConfig) -> str:
        return f"{metric.unit} {metric.bounds} {fingerprint(gathered[metric.name])}"

    names = [metric for metric in config.detection_metrics() if metric.name in gathered]
    key = {f"data of {metric.name}": data(metric) for metric in names}
    if INTEGRATED in gathered:
        inputs = [metric.name for metric in integrated_metrics(config, gathered)]
        key["data of all metrics"] = f"{inputs} {fingerprint(gathered[INTEGRATED])}"
    return key | {
        "options": json.dumps(asdict(options)),
        "device": device,
        "versions of peerwatch and torch": f"{__version__} {torch.__version__}",
    }
