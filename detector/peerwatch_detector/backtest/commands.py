"""The commands that work on recorded cases: backtest, evaluate, export-case."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from peerwatch_common.errors import ConfigError
from peerwatch_common.progress import Progress
from peerwatch_detector import __version__
from peerwatch_detector.backtest.ablation import method_ablations, method_config
from peerwatch_detector.backtest.case_progress import CaseProgress
from peerwatch_detector.backtest.cases import Truth, find_cases
from peerwatch_detector.backtest.evaluation import Evaluation, evaluate, guesses, lacks_truth
from peerwatch_detector.backtest.export_case import Stretch, export_case
from peerwatch_detector.backtest.output import check_outputs, check_picture, opened, write_text
from peerwatch_detector.backtest.run import CaseResult, Variants, line_of, replay_cases
from peerwatch_detector.backtest.table import report
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.models.store import Bundle
from peerwatch_detector.reading.reader import PrometheusReader


def run_backtest(options: argparse.Namespace, config: DetectorConfig, bundle: Bundle) -> int:
    """Replay cases and write one JSON line for each; 2 if one was broken or incomplete."""
    if options.method:
        config = method_config(config, options.method)
    folders = find_cases(options.cases)
    with opened(options.output) as out, CaseProgress(len(folders), sys.stderr) as progress:
        for result in replay_cases(folders, {"": config}, bundle, options.processes):
            progress.add(result)
            if not result.error:
                progress.output(line_of(result, ""), out)
        return progress.finish()


def run_evaluate(options: argparse.Namespace, config: DetectorConfig, bundle: Bundle) -> int:
    """Replay cases with each method and compare what they find with the truth."""
    check_picture(options.picture)
    methods, ablated = _variants(options, config, bundle)
    check_outputs(options.output, options.picture)
    variants = {**methods, **ablated}
    if lacking := [name for name, config in variants.items() if _lacks_model(config, bundle)]:
        sys.stderr.write(
            f"No model for some metric, compared by raw windows: {', '.join(lacking)}\n"
        )
    replayed = _replayed(find_cases(options.cases), variants, bundle, options.processes)
    if not replayed.results:
        # Why stands above, a line for each case.
        return replayed.code
    groups = {
        "methods": _evaluations(replayed.results, methods),
        "ablations": _evaluations(replayed.results, ablated),
        "references": {
            name: evaluate(replayed.results, findings)
            for name, findings in guesses(replayed.results).items()
        },
    }
    sys.stdout.write(report(*groups.values()))
    if options.output:
        write_text(options.output, _as_json(replayed, groups))
    if options.picture:
        # Loads matplotlib, which only a picture needs.
        from peerwatch_detector.backtest.picture import draw  # noqa: PLC0415

        write_text(options.picture, draw(groups["methods"]))
    return replayed.code


def run_export(options: argparse.Namespace, config: DetectorConfig) -> int:
    """Write a stretch of a live job as a case."""
    stretch = Stretch(options.job_id, options.start, options.end)
    with (
        PrometheusReader(config.prometheus) as reader,
        Progress(sys.stderr, len(config.read_metrics()), "metric") as progress,
    ):
        case = export_case(
            options.folder, stretch, _truth(options), config, reader, progress.advance
        )
    sys.stdout.write(
        f"{options.folder}: {len(case.nodes)} nodes, {case.seconds:.0f} s, "
        f"{len(case.frames)} metrics\n"
    )
    return 0


@dataclass(frozen=True, slots=True)
class _Replayed:
    """The cases that can be evaluated, why the others cannot, and the exit code."""

    results: list[CaseResult]
    refused: list[str]
    code: int


def _variants(
    options: argparse.Namespace, config: DetectorConfig, bundle: Bundle
) -> tuple[Variants, Variants]:
    """Return the methods that are asked for, and what is changed of them one by one."""
    names = [name.strip() for name in (options.method or config.method).split(",")]
    methods = {name: method_config(config, name) for name in names}
    if not options.ablate:
        return methods, {}
    # A variant that is asked for by name is in the report already.
    ablated = {
        name: changed
        for name, changed in method_ablations(config, methods).items()
        if name not in methods
    }
    if without := [name for name, row in ablated.items() if _lacks_integrated(row, bundle)]:
        # Asked for by name it is an error; a row among many is left out.
        sys.stderr.write(f"No model of all metrics, left out: {', '.join(without)}\n")
    return methods, {name: row for name, row in ablated.items() if name not in without}


def _replayed(
    folders: Sequence[Path], variants: Variants, bundle: Bundle, processes: int
) -> _Replayed:
    """Replay cases with every variant and keep those of which the truth is known."""
    results = []
    with CaseProgress(len(folders), sys.stderr) as progress:
        for result in replay_cases(folders, variants, bundle, processes):
            progress.add(result)
            if result.error:
                continue
            if reason := lacks_truth(result):
                progress.refuse(reason)
                continue
            results.append(result)
        return _Replayed(results, progress.refused, progress.finish())


def _evaluations(results: Sequence[CaseResult], variants: Variants) -> dict[str, Evaluation]:
    return {
        name: evaluate(results, [result.findings[name] for result in results]) for name in variants
    }


def _lacks_model(config: DetectorConfig, bundle: Bundle) -> bool:
    """Whether a configuration would have models but for the bundle."""
    names = {metric.name for metric in config.detection_metrics()}
    return config.method_config.needs_models and not names <= bundle.cards.keys()


def _lacks_integrated(config: DetectorConfig, bundle: Bundle) -> bool:
    """Whether a configuration needs a model of all metrics that is not there."""
    return config.method_config.needs_integrated_model and bundle.integrated is None


def _truth(options: argparse.Namespace) -> Truth | None:
    parts = {
        "--truth-node": options.truth_node,
        "--truth-fault": options.truth_fault,
        "--onset": options.onset,
    }
    given = [name for name, value in parts.items() if value or value == 0]
    if options.healthy:
        if given or options.halt is not None:
            raise ConfigError([f"--healthy: contradicts {', '.join(given) or '--halt'}."])
        return Truth(None, (), None, None)
    if not given and options.halt is None:
        return None
    if missing := [name for name in parts if name not in given]:
        raise ConfigError([f"export-case: {', '.join(missing)} missing; a fault needs all three."])
    halt = None if options.halt is None else options.halt - options.start
    return Truth(
        options.truth_fault, tuple(options.truth_node), options.onset - options.start, halt
    )


def _as_json(replayed: _Replayed, groups: Mapping[str, Mapping[str, Evaluation]]) -> str:
    whole = {
        "version": __version__,
        "cases": [str(result.folder) for result in replayed.results],
        "refused": replayed.refused,
        **{
            group: {name: asdict(evaluation) for name, evaluation in evaluations.items()}
            for group, evaluations in groups.items()
        },
    }
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"
