"""The command ``train``: gathers healthy windows, trains the models and writes their bundle."""

from __future__ import annotations

import argparse
import os
import sys

from peerwatch_common.errors import ConfigError
from peerwatch_common.progress import Progress
from peerwatch_detector.backtest.cases import find_cases
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.errors import ModelError, TrainingError
from peerwatch_detector.reading.reader import PrometheusReader
from peerwatch_detector.training.fit import TrainingOptions, choose_device
from peerwatch_detector.training.healthy import (
    HealthyWindows,
    windows_from_cases,
    windows_from_prometheus,
)
from peerwatch_detector.training.run import checkpoint_path, train_bundle


def run_train(options: argparse.Namespace, config: DetectorConfig) -> int:
    """Train and write the bundle; 130 if it was interrupted.

    Raises
    ------
    ConfigError
        If the command line names neither cases nor a range.
    ModelError
        If the bundle cannot be written.
    TrainingError
        If no model could be trained, or not on the device that is asked for.
    """
    output = options.output
    if output.is_dir() or not os.access(output.parent, os.W_OK):
        # Found now and not after minutes of training.
        raise ModelError(f"{output}: cannot be written; its folder must exist.")
    device = choose_device(options.device)
    settings = TrainingOptions(steps=options.steps, seed=options.seed)
    checkpoint = checkpoint_path(output)
    try:
        run = train_bundle(
            _gather(options, config),
            config,
            settings,
            sys.stderr,
            device=device,
            checkpoint=checkpoint,
        )
        run.bundle.save(output)
    except TrainingError:
        # What was refused once is not to be refused unseen the next time.
        checkpoint.unlink(missing_ok=True)
        raise
    except KeyboardInterrupt:
        kept = f"what is done is in {checkpoint}; the same command goes on from there"
        state = kept if checkpoint.exists() else "nothing is done yet"
        sys.stderr.write(f"\npeerwatch-detector: interrupted; {state}.\n")
        return 130
    checkpoint.unlink(missing_ok=True)
    for metric, reason in run.refused.items():
        sys.stderr.write(f"peerwatch-detector: no model of {metric}: {reason}\n")
    sys.stdout.write(f"{len(run.bundle.weights)} models written to {output}\n")
    return 0


def _gather(options: argparse.Namespace, config: DetectorConfig) -> HealthyWindows:
    """Return the windows to train on, from cases or from Prometheus."""
    integrated = options.integrated
    if options.cases:
        folders = find_cases(options.cases)
        with Progress(sys.stderr, len(folders), "case") as progress:
            return windows_from_cases(
                config, folders, integrated=integrated, advance=progress.advance
            )
    missing = [
        f"--{name}"
        for name in ("job-id", "start", "end")
        if getattr(options, name.replace("-", "_")) is None
    ]
    if missing:
        raise ConfigError(
            [
                f"train: {', '.join(missing)} missing; give --job-id, --start and "
                "--end, or --cases DIR..."
            ]
        )
    with (
        PrometheusReader(config.prometheus) as reader,
        Progress(sys.stderr, len(config.detection_metrics()), "metric") as progress,
    ):
        return windows_from_prometheus(
            config,
            reader,
            options.job_id,
            options.start,
            options.end,
            integrated=integrated,
            advance=progress.advance,
        )
