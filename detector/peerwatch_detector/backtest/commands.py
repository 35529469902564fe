"""The commands that work on recorded cases: backtest, evaluate, export-case."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from peerwatch_common.errors import ConfigError
from peerwatch_detector import __version__
from peerwatch_detector.backtest.ablation import method_ablations, method_config
from peerwatch_detector.backtest.cases import Truth, find_cases
from peerwatch_detector.backtest.evaluation import Evaluation, evaluate, guesses, lacks_truth
from peerwatch_detector.backtest.export_case import Stretch, export_case
from peerwatch_detector.backtest.picture import draw
from peerwatch_detector.backtest.run import Outcome, line_of, replay_cases
from peerwatch_detector.backtest.table import report
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.errors import CaseError
from peerwatch_detector.models.store import Bundle
from peerwatch_detector.reading.reader import PrometheusReader


def run_backtest(options: argparse.Namespace, config: DetectorConfig, bundle: Bundle) -> int:
    """Replay cases and write one JSON line for each; 2 if one was broken or incomplete."""
    if options.method:
        config = method_config(config, options.method)
    folders = find_cases(options.cases)
    told = Teller(len(folders), sys.stderr)
    with _output(options.output) as out:
        for outcome in replay_cases(folders, {"": config}, bundle, options.processes):
            told.tell(outcome)
            if not outcome.error:
                out.write(line_of(outcome, "") + "\n")
                out.flush()
    return told.end()


def run_evaluate(options: argparse.Namespace, config: DetectorConfig, bundle: Bundle) -> int:
    """Replay cases with each method and compare what they find with the truth."""
    names = [name.strip() for name in (options.method or config.method).split(",")]
    methods = {name: method_config(config, name) for name in names}
    changed = method_ablations(config, methods) if options.ablate else {}
    # A variant that is asked for by name is in the report already.
    changed = {name: one for name, one in changed.items() if name not in methods}
    if without := [name for name, one in changed.items() if _lacks_integrated(one, bundle)]:
        # Who asks for it by name is told that it cannot be; a row among many is left out.
        sys.stderr.write(f"No model of all metrics, left out: {', '.join(without)}\n")
        changed = {name: one for name, one in changed.items() if name not in without}
    if options.picture and options.picture.suffix.lower() != ".svg":
        raise ConfigError([f"--picture {options.picture}: is drawn as SVG; name it *.svg."])
    for path in filter(None, (options.output, options.picture)):
        _check_writable(path)
    if lacking := [name for name, one in (methods | changed).items() if _lacks_model(one, bundle)]:
        sys.stderr.write(
            f"No model for some metric, compared by raw windows: {', '.join(lacking)}\n"
        )
    folders = find_cases(options.cases)
    told = Teller(len(folders), sys.stderr)
    evaluated = []
    for outcome in replay_cases(folders, methods | changed, bundle, options.processes):
        told.tell(outcome)
        if outcome.error:
            continue
        if reason := lacks_truth(outcome):
            told.refuse(reason)
            continue
        evaluated.append(outcome)
    code = told.end()
    if not evaluated:
        raise CaseError("None of the cases could be evaluated; see above.")
    evaluations, rows = (
        {
            name: evaluate(evaluated, [outcome.findings[name] for outcome in evaluated])
            for name in some
        }
        for some in (methods, changed)
    )
    references = {name: evaluate(evaluated, some) for name, some in guesses(evaluated).items()}
    sys.stdout.write(report(evaluations, rows, references))
    if options.output:
        groups = {"methods": evaluations, "ablations": rows, "references": references}
        _write(options.output, _as_json(evaluated, told.refused, groups))
    if options.picture:
        _write(options.picture, draw(evaluations))
    return code


def run_export(options: argparse.Namespace, config: DetectorConfig) -> int:
    """Write a stretch of a live job as a case."""
    stretch = Stretch(options.job_id, options.start, options.end)
    with PrometheusReader(config.prometheus) as reader:
        case = export_case(options.folder, stretch, _truth(options), config, reader)
    sys.stdout.write(
        f"{options.folder}: {len(case.nodes)} nodes, {case.seconds:.0f} s, "
        f"{len(case.frames)} metrics\n"
    )
    return 0


def _lacks_model(config: DetectorConfig, bundle: Bundle) -> bool:
    """Whether a configuration would have models but for the bundle."""
    names = {metric.name for metric in config.detection_metrics()}
    return config.method_config.needs_models and not names <= bundle.cards.keys()


def _lacks_integrated(config: DetectorConfig, bundle: Bundle) -> bool:
    """Whether a configuration needs a model of all metrics that is not there."""
    return config.method_config.needs_integrated_model and bundle.integrated is None


class Teller:
    """Tells of progress and trouble on the error stream, and sums up.

    Parameters
    ----------
    total
        Number of cases.
    out
        Rewritten in place on a terminal; otherwise only trouble and every tenth case is told.
    """

    def __init__(self, total: int, out: TextIO) -> None:
        self.total = total
        self.refused: list[str] = []
        self._out = out
        self._done = 0
        self._left: dict[str, int] = {}

    def tell(self, outcome: Outcome) -> None:
        """Take in one more case."""
        self._done += 1
        for name in outcome.not_looked_at:
            self._left[name] = self._left.get(name, 0) + 1
        if outcome.error or outcome.incomplete:
            self.refuse(outcome.error or outcome.incomplete)
        if self._out.isatty():
            self._out.write(f"\r\x1b[K{self._done}/{self.total} {outcome.case}")
        elif self._done % 10 == 0 or self._done == self.total:
            self._out.write(f"{self._done}/{self.total} cases\n")
        self._out.flush()

    def refuse(self, reason: str) -> None:
        """Name a case that is broken, incomplete, or not to be evaluated."""
        self.refused.append(reason)
        start = "\r\x1b[K" if self._out.isatty() else ""
        self._out.write(f"{start}peerwatch-detector: {reason}\n")

    def end(self) -> int:
        """Sum up and return the exit code: 2 if anything was refused."""
        if self._out.isatty():
            self._out.write("\r\x1b[K")
        if self._left:
            names = ", ".join(f"{name} in {count}" for name, count in self._left.items())
            self._out.write(
                f"Not looked at, as the configuration does not compare them: {names} case(s).\n"
            )
        return 2 if self.refused else 0


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


def _as_json(
    evaluated: list[Outcome], refused: list[str], groups: dict[str, dict[str, Evaluation]]
) -> str:
    report = {
        "version": __version__,
        "cases": [str(outcome.folder) for outcome in evaluated],
        "refused": refused,
        **{
            group: {name: asdict(one) for name, one in evaluations.items()}
            for group, evaluations in groups.items()
        },
    }
    return json.dumps(report, indent=1, allow_nan=False) + "\n"


@contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """Open the output before the work, so that a wrong path is told at once."""
    if path is None:
        yield sys.stdout
        return
    try:
        file = path.open("w")
    except OSError as error:
        raise CaseError(f"{path}: cannot be written: {error.strerror}.") from error
    with file:
        yield file


def _check_writable(path: Path) -> None:
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise CaseError(f"{path}: cannot be written; its folder must exist.")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise CaseError(f"{path}: cannot be written: {error.strerror}.") from error
