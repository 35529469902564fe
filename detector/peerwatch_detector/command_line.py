"""The detector's command line: commands, options, and what they change of the configuration."""

from __future__ import annotations

import argparse
import math
import os
from datetime import datetime
from pathlib import Path

from peerwatch_common.command_line import add_logging, whole_number
from peerwatch_common.completion import add_completion
from peerwatch_detector import __version__
from peerwatch_detector.diagnosis.report.options import add_diagnose
from peerwatch_detector.diagnosis.stragglers.options import add_stragglers
from peerwatch_detector.diagnosis.timeline.options import add_timeline
from peerwatch_detector.files import add_files
from peerwatch_detector.priority.options import add_prioritize


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; it needs none of the extras."""
    whole = argparse.ArgumentParser(
        prog="peerwatch-detector", description="Finds the faulty node of a training job."
    )
    whole.add_argument("--version", action="version", version=f"peerwatch-detector {__version__}")
    add_completion(whole)
    commands = whole.add_subparsers(dest="command", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", type=Path, help="YAML configuration file")
    common.add_argument("--prometheus", metavar="URL", help="overrides prometheus.url")
    add_logging(common)
    prepare = commands.add_parser(
        "prepare",
        help="compile the functions beforehand, which the first start would do, and keep them",
    )
    add_logging(prepare)
    prepare.epilog = (
        "They are kept in the folder of the environment variable NUMBA_CACHE_DIR, else beside the "
        "package's files."
    )
    run = commands.add_parser("run", parents=[common], help="evaluate jobs and serve the findings")
    run.add_argument("--listen", metavar="HOST:PORT", help="overrides listen")
    run.add_argument(
        "--web.config.file",
        dest="web_config_file",
        type=Path,
        metavar="FILE",
        help="overrides web.config_file: TLS and basic authentication, in the format of "
        "Prometheus' exporter-toolkit",
    )
    run.add_argument(
        "--check",
        action="store_true",
        help="only check the configuration and what it names: exit with 0, or with 2 and a line "
        "for each mistake",
    )
    train = commands.add_parser(
        "train", parents=[common], help="train the models on a healthy range or on cases"
    )
    _add_train(train)
    add_prioritize(commands, common)
    backtest = commands.add_parser(
        "backtest", parents=[common], help="replay recorded cases and write what is found"
    )
    _add_backtest(backtest)
    evaluate = commands.add_parser(
        "evaluate", parents=[common], help="compare methods on cases of which the truth is known"
    )
    _add_evaluate(evaluate)
    export = commands.add_parser(
        "export-case", parents=[common], help="write a stretch of a job in Prometheus as a case"
    )
    _add_export(export)
    bench = commands.add_parser(
        "bench", parents=[common], help="measure what this server and this machine give"
    )
    _add_bench(bench)
    add_stragglers(commands)
    add_timeline(commands, common, moment)
    add_diagnose(commands, common)
    add_files(commands)
    return whole


def changes(options: argparse.Namespace) -> dict[str, dict[str, object]]:
    """Return what the command line changes of the configuration file."""
    changed: dict[str, dict[str, object]] = {}
    if options.prometheus:
        changed["prometheus"] = {"url": options.prometheus}
    if getattr(options, "listen", None):
        address, _, port = options.listen.rpartition(":")
        changed["listen"] = {"address": address or "127.0.0.1", "port": port}
    if getattr(options, "web_config_file", None):
        changed["web"] = {"config_file": options.web_config_file}
    return changed


def moment(text: str) -> float:
    """Return a Unix time given as a number or as ISO 8601, which without a zone is local time.

    Raises
    ------
    argparse.ArgumentTypeError
        If it is neither.
    """
    try:
        seconds = float(text)
    except ValueError:
        pass
    else:
        if math.isfinite(seconds):
            return seconds
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; give Unix seconds or ISO 8601 such as 2026-01-31T12:00:00Z"
        ) from error


def _add_train(train: argparse.ArgumentParser) -> None:
    train.add_argument("--job-id", help="training job to read from Prometheus")
    for name, what in (("--start", "begin"), ("--end", "end")):
        train.add_argument(
            name,
            type=moment,
            metavar="T",
            help=f"{what} of its healthy range, Unix or ISO 8601",
        )
    train.add_argument(
        "--cases",
        type=Path,
        nargs="+",
        metavar="CASE",
        help="case folders, or folders of cases, instead",
    )
    train.add_argument("--output", type=Path, required=True, help="model bundle to write (.npz)")
    train.add_argument(
        "--integrated",
        action="store_true",
        help="also one model of all metrics that method minder compares (minder.join integrated)",
    )
    train.add_argument(
        "--steps",
        type=whole_number(1),
        default=3000,
        metavar="N",
        help="optimiser steps per model (default: %(default)s)",
    )
    train.add_argument(
        "--seed", type=whole_number(0, 2**32 - 1), default=0, help="makes a training repeatable"
    )
    train.add_argument(
        "--device",
        choices=["auto", "cpu", "cuda"],
        default="auto",
        help="what to train on; auto takes a GPU if torch finds one (default: %(default)s)",
    )
    train.epilog = (
        "A training that was interrupted goes on when the same command is given again. A metric "
        "that cannot be trained is named and has no model in the bundle; the exit code is 1 only "
        "if none has."
    )


def _add_cases(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "cases", type=Path, nargs="+", metavar="CASE", help="case folder, or folder of cases"
    )
    command.add_argument(
        "-j",
        "--processes",
        type=whole_number(1),
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="cases replayed at a time (default: %(default)s)",
    )


def _add_backtest(backtest: argparse.ArgumentParser) -> None:
    _add_cases(backtest)
    backtest.add_argument("--method", metavar="M", help="overrides method")
    backtest.add_argument(
        "--output", type=Path, metavar="FILE", help="JSON lines, one per case (default: stdout)"
    )


def _add_evaluate(evaluate: argparse.ArgumentParser) -> None:
    _add_cases(evaluate)
    evaluate.add_argument(
        "--method",
        metavar="M[,M...]",
        help="methods to compare, also variants such as minder:raw or minder:int (default: the "
        "configured one)",
    )
    evaluate.add_argument(
        "--ablate", action="store_true", help="also change each part of the methods, one by one"
    )
    evaluate.add_argument("--output", type=Path, metavar="FILE", help="everything as JSON")
    evaluate.add_argument("--picture", type=Path, metavar="FILE", help="a picture of it (.svg)")


def _add_export(export: argparse.ArgumentParser) -> None:
    export.add_argument("folder", type=Path, metavar="DIR", help="new folder of the case")
    export.add_argument("--job-id", required=True, help="training job")
    for name, what in (("--start", "first"), ("--end", "last")):
        export.add_argument(
            name, type=moment, required=True, metavar="T", help=f"{what} second, Unix or ISO 8601"
        )
    export.add_argument(
        "--truth-node", action="append", default=[], metavar="N", help="faulty node; repeatable"
    )
    export.add_argument("--truth-fault", metavar="F", help="what was wrong with it")
    export.add_argument("--onset", type=moment, metavar="T", help="when it began")
    export.add_argument("--halt", type=moment, metavar="T", help="when the job halted, if it did")
    export.add_argument(
        "--healthy", action="store_true", help="nothing was wrong: any finding would be false"
    )


def _add_bench(bench: argparse.ArgumentParser) -> None:
    bench.add_argument(
        "--nodes",
        type=int,
        default=1500,
        metavar="N",
        help="size of the job (default: %(default)s)",
    )
    bench.add_argument(
        "--metrics", type=int, metavar="M", help="compare the first M metrics only (default: all)"
    )
    bench.add_argument("--url", dest="prometheus", help="the same as --prometheus")
    bench.add_argument(
        "--series", metavar="NAME", help="read these series in place of the metrics' recorded ones"
    )
    bench.add_argument(
        "--node-label", default="node", metavar="LABEL", help="their label (default: %(default)s)"
    )
    bench.add_argument("--json", action="store_true", help="for programs")
