"""Command line of the detector: parse, wire, run."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING

from peerwatch_detector import __version__
from peerwatch_detector.command_line import changes, parser

if TYPE_CHECKING:
    from peerwatch_detector.config import DetectorConfig
    from peerwatch_detector.healthy import Windows
    from peerwatch_detector.models.store import Bundle


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 failed, 2 wrong usage or configuration."""
    options = parser().parse_args(arguments)
    logging.basicConfig(
        level=options.log_level.upper(),
        format="time=%(asctime)s level=%(levelname)s source=%(name)s msg=%(message)s",
    )
    # Waking two arithmetic threads on a busy host costs more than it brings.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    try:
        from peerwatch_detector.config import load_config  # noqa: PLC0415 - extras may be missing
        from peerwatch_detector.errors import ConfigError, PeerwatchError  # noqa: PLC0415
    except ModuleNotFoundError as error:
        return _missing(error, "detector", "The detector")
    try:
        config = load_config(options.config, changes(options))
        return _COMMANDS[options.command](options, config)
    except ConfigError as error:
        for mistake in error.mistakes:
            print(f"peerwatch-detector: {mistake}", file=sys.stderr)
        return 2
    except PeerwatchError as error:
        print(f"peerwatch-detector: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        extra = "train" if options.command == "train" else "detector"
        return _missing(error, extra, f"`peerwatch-detector {options.command}`")


def _missing(error: ModuleNotFoundError, extra: str, who: str) -> int:
    print(
        f"{who} needs {error.name!r}, which is not installed. "
        f"Install it with: pip install 'peerwatch[{extra}]'",
        file=sys.stderr,
    )
    return 2


def _bundle(config: DetectorConfig) -> Bundle:
    from peerwatch_detector.models.store import EMPTY, load_bundle  # noqa: PLC0415

    return EMPTY if config.models is None else load_bundle(config.models)


def _run(_options: argparse.Namespace, config: DetectorConfig) -> int:
    import waitress  # noqa: PLC0415

    from peerwatch_detector.reader import PrometheusReader  # noqa: PLC0415
    from peerwatch_detector.service import Detector  # noqa: PLC0415
    from peerwatch_detector.web import create_app  # noqa: PLC0415

    logger = logging.getLogger("peerwatch_detector")
    detector = Detector(config, PrometheusReader(config.prometheus), _bundle(config))
    address = f"{config.listen.address}:{config.listen.port}"
    try:
        server = waitress.create_server(create_app(detector), listen=address, threads=4)
    except (OSError, ValueError) as error:
        print(
            f"peerwatch-detector: cannot listen on {address}: {error}; "
            "change listen.port or --listen.",
            file=sys.stderr,
        )
        return 1
    stop = threading.Event()

    def finish(_signal: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, finish)
    loop = threading.Thread(target=detector.run, args=(stop,), name="cycles", daemon=True)
    logger.info(
        "started version=%s listen=%s prometheus=%s method=%s metrics=%d",
        __version__,
        address,
        config.prometheus.url,
        config.method,
        len(detector.metrics),
    )
    loop.start()
    try:
        server.run()
    except (SystemExit, KeyboardInterrupt):
        logger.info("stopping")
    finally:
        stop.set()
        server.close()
        loop.join(timeout=2)
    return 0


def _train(options: argparse.Namespace, config: DetectorConfig) -> int:
    from peerwatch_detector.errors import ModelError  # noqa: PLC0415
    from peerwatch_detector.models.training import TrainingOptions  # noqa: PLC0415
    from peerwatch_detector.training_run import train_bundle  # noqa: PLC0415

    if not os.access(options.output.parent, os.W_OK):
        # Told now and not after minutes of training.
        raise ModelError(f"{options.output}: cannot be written; its folder must exist.")
    gathered = _gather(options, config)
    settings = TrainingOptions(steps=options.steps, seed=options.seed)
    bundle = train_bundle(gathered, config, settings, sys.stderr)
    bundle.save(options.output)
    print(f"{len(bundle.cards)} models written to {options.output}")
    return 0


def _gather(options: argparse.Namespace, config: DetectorConfig) -> Windows:
    from peerwatch_detector.errors import ConfigError  # noqa: PLC0415
    from peerwatch_detector.healthy import (  # noqa: PLC0415
        windows_from_cases,
        windows_from_prometheus,
    )
    from peerwatch_detector.reader import PrometheusReader  # noqa: PLC0415

    if options.cases:
        return windows_from_cases(config, options.cases)
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
    reader = PrometheusReader(config.prometheus)
    return windows_from_prometheus(config, reader, options.job_id, options.start, options.end)


def _backtest(options: argparse.Namespace, config: DetectorConfig) -> int:
    from peerwatch_detector.case_commands import run_backtest  # noqa: PLC0415

    return run_backtest(options, config, _bundle(config))


def _evaluate(options: argparse.Namespace, config: DetectorConfig) -> int:
    from peerwatch_detector.case_commands import run_evaluate  # noqa: PLC0415

    return run_evaluate(options, config, _bundle(config))


def _export_case(options: argparse.Namespace, config: DetectorConfig) -> int:
    from peerwatch_detector.case_commands import run_export  # noqa: PLC0415

    return run_export(options, config)


# Each imports what it needs itself: extras may be missing.
_COMMANDS = {
    "run": _run,
    "train": _train,
    "backtest": _backtest,
    "evaluate": _evaluate,
    "export-case": _export_case,
}


if __name__ == "__main__":
    sys.exit(main())
