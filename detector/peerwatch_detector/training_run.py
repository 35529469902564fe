"""Trains one model per metric, tells how it goes, and joins them into a bundle."""

from __future__ import annotations

from typing import TextIO

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.errors import TrainingError
from peerwatch_detector.healthy import Windows
from peerwatch_detector.models.store import Bundle, ModelCard
from peerwatch_detector.models.training import TrainingOptions, train_model

_BAR = 24


def train_bundle(
    gathered: Windows, config: DetectorConfig, options: TrainingOptions, progress: TextIO
) -> Bundle:
    """Train the models of all gathered metrics.

    Parameters
    ----------
    gathered
        Scaled healthy windows by metric.
    config
        Bounds and units of the metrics.
    options
        How to train.
    progress
        Where the progress bar goes; rewritten in place on a terminal, one line a metric else.

    Raises
    ------
    TrainingError
        If a metric's windows cannot train a model; says which metric.
    """
    weights, cards = {}, {}
    for metric in config.detection_metrics():
        if metric.name not in gathered:
            progress.write(f"{metric.name:<22} no samples, compared by raw windows\n")
            continue
        line = _Line(metric.name, progress)
        try:
            trained = train_model(gathered[metric.name], options, line.show)
        except TrainingError as error:
            raise TrainingError(f"Metric {metric.name!r}: {error}") from error
        line.end(trained.windows, trained.reconstruction_error)
        weights[metric.name] = trained.weights
        cards[metric.name] = ModelCard(
            metric.name,
            metric.unit,
            metric.bounds,
            config.window_length,
            trained.windows,
            trained.data_fingerprint,
            trained.reconstruction_error,
        )
    return Bundle(weights, cards)


class _Line:
    """The progress bar of one metric."""

    def __init__(self, name: str, out: TextIO) -> None:
        self.name = name
        self.out = out

    def show(self, step: int, steps: int, loss: float) -> None:
        """Redraw the bar."""
        if self.out.isatty():
            done = "#" * (step * _BAR // steps)
            self.out.write(f"\r{self.name:<22} [{done:<{_BAR}}] {step}/{steps} loss {loss:.2e}")
            self.out.flush()

    def end(self, windows: int, error: float) -> None:
        """Replace the bar by the result."""
        start = "\r" if self.out.isatty() else ""
        result = f"{windows} windows, held-out mean squared error {error:.1e}"
        self.out.write(f"{start}{self.name:<22} {result:<60}\n")
        self.out.flush()
