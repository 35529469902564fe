"""Command line of the detector: parse, wire, run."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import TYPE_CHECKING

from peerwatch_common.installation import install_advice
from peerwatch_common.logs import one_line, set_up_logging
from peerwatch_detector.command_line import changes, parser

if TYPE_CHECKING:
    from peerwatch_detector.config import DetectorConfig
    from peerwatch_detector.models.store import Bundle


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 failed, 2 wrong usage or configuration."""
    options = parser().parse_args(arguments)
    return _files(options) if options.command == "files" else _with_extras(options)


def _with_extras(options: argparse.Namespace) -> int:
    """Run a command that needs numpy and other packages of the extras."""
    set_up_logging(options.log_level, options.log_format)
    # Waking two arithmetic threads on a busy host costs more than it brings.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    try:
        import peerwatch_detector.config  # noqa: F401, PLC0415 - extras may be missing
        from peerwatch_common.errors import ConfigError, PeerwatchError  # noqa: PLC0415
        from peerwatch_detector.errors import CaseError, TraceError  # noqa: PLC0415
    except ModuleNotFoundError as error:
        return _missing(error, "detector", "it")
    try:
        return _command(options)
    except ConfigError as error:
        for mistake in error.mistakes:
            print(f"peerwatch-detector: {one_line(mistake)}", file=sys.stderr)
        return 2
    except PeerwatchError as error:
        # It may repeat what a server answered.
        print(f"peerwatch-detector: {one_line(str(error))}", file=sys.stderr)
        # Cases and traces are named on the command line: the same mistake, whatever meets it.
        return 2 if isinstance(error, CaseError | TraceError) else 1
    except KeyboardInterrupt:
        print("\npeerwatch-detector: interrupted.", file=sys.stderr)
        return 130
    except ModuleNotFoundError as error:
        extra = "detector,train" if options.command in ("train", "prioritize") else "detector"
        return _missing(error, extra, f"`{options.command}`")


def _command(options: argparse.Namespace) -> int:
    if options.command == "prepare":
        return _prepare()
    if options.command == "stragglers":
        return _stragglers(options)
    from peerwatch_detector.config import load_config  # noqa: PLC0415

    return _COMMANDS[options.command](options, load_config(options.config, changes(options)))


def _files(options: argparse.Namespace) -> int:
    """Run ``files``, which needs none of the extras."""
    from peerwatch_common.errors import ConfigError, PeerwatchError  # noqa: PLC0415
    from peerwatch_detector.files import run_files  # noqa: PLC0415

    try:
        return run_files(options)
    except PeerwatchError as error:
        print(f"peerwatch-detector: {one_line(str(error))}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1


def _missing(error: ModuleNotFoundError, extra: str, who: str) -> int:
    print(
        f"peerwatch-detector: {who} needs {error.name!r}, which is not installed. "
        f"{install_advice(extra)}",
        file=sys.stderr,
    )
    return 2


def _bundle(config: DetectorConfig) -> Bundle:
    from peerwatch_common.errors import ConfigError  # noqa: PLC0415
    from peerwatch_detector.errors import ModelError  # noqa: PLC0415
    from peerwatch_detector.models.shipped import configured_bundle  # noqa: PLC0415

    try:
        bundle, left_out = configured_bundle(config)
    except ModelError as error:
        if config.models == "default":
            raise
        # A file that the configuration names is a part of it.
        raise ConfigError([f"models: {error}"]) from error
    for reason in left_out:
        logging.getLogger("peerwatch_detector").warning("shipped_model_left_out %s", reason)
    if config.method_config.needs_models:
        names = [
            metric.name for metric in config.detection_metrics() if metric.name not in bundle.cards
        ]
        if names and config.models != "none":
            logging.getLogger("peerwatch_detector").warning(
                "no_model metrics=%s compared=raw_windows", ",".join(names)
            )
    return bundle


def _run(options: argparse.Namespace, config: DetectorConfig) -> int:
    if options.check:
        return _check(config)
    from peerwatch_detector.config import load_config  # noqa: PLC0415
    from peerwatch_detector.web.run import SettingsFile, run_detector  # noqa: PLC0415

    settings = SettingsFile(
        options.config, lambda: load_config(options.config, changes(options)), _bundle
    )
    run_detector(config, _bundle(config), settings)
    return 0


def _prepare() -> int:
    from peerwatch_detector.service.prepare import prepare_for_later_starts  # noqa: PLC0415

    print("Compiling the detector's functions: some 20 s of CPU.", file=sys.stderr)
    print(f"Compiled; kept in {prepare_for_later_starts()}.", file=sys.stderr)
    return 0


def _stragglers(options: argparse.Namespace) -> int:
    from peerwatch_detector.diagnosis.stragglers.command import run_stragglers  # noqa: PLC0415

    return run_stragglers(options)


def _diagnose(options: argparse.Namespace, config: DetectorConfig) -> int:
    from peerwatch_detector.diagnosis.report.command import run_diagnose  # noqa: PLC0415
    from peerwatch_detector.diagnosis.report.recorded import diagnose_cases  # noqa: PLC0415

    if options.cases:
        return diagnose_cases(
            options.cases, options.at, as_json=options.json, stacks=options.stacks
        )
    return run_diagnose(options, config)


def _timeline(options: argparse.Namespace, config: DetectorConfig) -> int:
    from peerwatch_detector.diagnosis.timeline.command import run_timeline  # noqa: PLC0415

    return run_timeline(options, config)


def _check(config: DetectorConfig) -> int:
    """Read all that the configuration names, as a start would."""
    _bundle(config)
    if config.web.config_file is not None:
        from peerwatch_common.web.load import load_web_settings  # noqa: PLC0415

        load_web_settings(config.web.config_file)
    print("The configuration has no mistakes.")
    return 0


def _train(options: argparse.Namespace, config: DetectorConfig) -> int:
    from peerwatch_detector.training.command import run_train  # noqa: PLC0415

    return run_train(options, config)


def _prioritize(options: argparse.Namespace, config: DetectorConfig) -> int:
    from peerwatch_detector.priority.command import run_prioritize  # noqa: PLC0415

    return run_prioritize(options, config)


def _backtest(options: argparse.Namespace, config: DetectorConfig) -> int:
    from peerwatch_detector.backtest.commands import run_backtest  # noqa: PLC0415

    return run_backtest(options, config, _bundle(config))


def _evaluate(options: argparse.Namespace, config: DetectorConfig) -> int:
    from peerwatch_detector.backtest.commands import run_evaluate  # noqa: PLC0415

    return run_evaluate(options, config, _bundle(config))


def _export_case(options: argparse.Namespace, config: DetectorConfig) -> int:
    from peerwatch_detector.backtest.commands import run_export  # noqa: PLC0415

    return run_export(options, config)


def _bench(options: argparse.Namespace, config: DetectorConfig) -> int:
    from peerwatch_detector.bench.command import run_bench  # noqa: PLC0415

    return run_bench(options, config, _bundle(config))


# Each imports what it needs itself: extras may be missing.
_COMMANDS = {
    "run": _run,
    "train": _train,
    "prioritize": _prioritize,
    "backtest": _backtest,
    "evaluate": _evaluate,
    "export-case": _export_case,
    "bench": _bench,
    "timeline": _timeline,
    "diagnose": _diagnose,
}


if __name__ == "__main__":
    sys.exit(main())
