"""Evaluates method peerwatch on cases as they are simulated, a line of a file for each.

``python -m peerwatch_demo.simulator.evaluation OUT.jsonl --family soak --node-days 50``

Cases are neither kept nor written out, so thousands of node-days fit on any disk. What is in the
file is not evaluated again: give the same file with more --node-days or --cases to go on.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, fields
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from peerwatch_common.errors import ConfigError
from peerwatch_common.progress import Progress
from peerwatch_demo.simulator.case import simulate_seed, write_case
from peerwatch_demo.simulator.family import FAMILY_NAMES
from peerwatch_detector.backtest.cases import load_case
from peerwatch_detector.backtest.evaluation import CaseEvaluation, evaluate_case, summarize
from peerwatch_detector.backtest.replay import replay
from peerwatch_detector.backtest.run import CaseResult, line_of
from peerwatch_detector.backtest.table import report
from peerwatch_detector.config import DetectorConfig, load_config
from peerwatch_detector.models.store import EMPTY

_METHOD = "peerwatch"
Line = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Evaluate until there are enough cases or node-days, and print the tables of the file."""
    options = _parser().parse_args(arguments)
    try:
        config = DetectorConfig() if options.config is None else load_config(options.config, {})
        lines = _lines(options.output, options.family)
        _go_on(options, lines, config)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    sys.stdout.write(report({_METHOD: summarize([_verdict(line) for line in lines])}))
    return 0


def evaluate_seed(family: str, seed: int, config: DetectorConfig) -> Line:
    """Simulate the case of a seed, replay it, and return its line of the file."""
    case = simulate_seed(family, seed, faulty=seed % 2 == 0)
    with tempfile.TemporaryDirectory() as folder:
        write_case(case, Path(folder), compress=False)
        loaded = load_case(Path(folder))
    findings = replay(loaded, config, EMPTY).findings
    result = CaseResult(
        Path(case.name),
        case.name,
        loaded.nodes,
        loaded.seconds,
        loaded.truth,
        {_METHOD: findings},
    )
    verdict = asdict(evaluate_case(result, findings))
    said = json.loads(line_of(result, _METHOD))["findings"]
    severities = [finding.severity for finding in findings]
    for finding, severity in zip(said, severities, strict=True):
        finding["severity"] = severity
    return {"family": family, "seed": seed, **verdict, "findings": said}


def _go_on(options: argparse.Namespace, lines: list[Line], config: DetectorConfig) -> None:
    """Append the lines that are missing."""
    known = {line["seed"] for line in lines}
    if options.cases is not None:
        seeds: Iterator[int] = iter(range(options.seed, options.seed + options.cases))
        total = options.cases
    else:
        seeds, total = count(options.seed), max(1, round(options.node_days))

    def enough() -> bool:
        return options.cases is None and _node_days(lines) >= options.node_days

    left = (seed for seed in seeds if seed not in known)
    unit = "case" if options.cases is not None else "node-day"
    with Progress(sys.stderr, total, unit) as progress, options.output.open("a") as file:
        shown = 0
        for line in _evaluated(left, enough, options, config):
            lines.append(line)
            file.write(json.dumps(line) + "\n")
            file.flush()
            done = len(lines) if options.cases is not None else int(_node_days(lines))
            progress.describe(line["case"])
            progress.advance(min(done, total) - shown)
            shown = min(done, total)


def _evaluated(
    seeds: Iterator[int],
    enough: Callable[[], bool],
    options: argparse.Namespace,
    config: DetectorConfig,
) -> Iterator[Line]:
    """Yield the lines of seeds as they get ready, until there are enough."""
    task = partial(evaluate_seed, options.family, config=config)
    if options.processes <= 1:
        while not enough() and (seed := next(seeds, None)) is not None:
            yield task(seed)
        return
    # A forked child may inherit locks of the threads that arithmetic libraries start.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, context) as pool:
        running: set[Future[Line]] = set()
        while True:
            while not enough() and len(running) < options.processes:
                if (seed := next(seeds, None)) is None:
                    break
                running.add(pool.submit(task, seed))
            if not running:
                return
            ready, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (each.result() for each in ready)


def _lines(path: Path, family: str) -> list[Line]:
    """Read what is done, without a last line that was cut short.

    Raises
    ------
    ConfigError
        If the file cannot be read, or is of another family.
    """
    try:
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        lines = [json.loads(line) for line in whole.splitlines()]
        if whole != text:
            path.write_text(whole)
        others = {line["family"] for line in lines} - {family}
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read or written: {error.strerror}."]) from error
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            [f"{path}: is no file of this command ({error!r}); name another one."]
        ) from error
    if others:
        raise ConfigError(
            [f"{path}: has cases of {', '.join(sorted(others))}, not of {family}; name another."]
        )
    return lines


def _verdict(line: Line) -> CaseEvaluation:
    return CaseEvaluation(**{each.name: line[each.name] for each in fields(CaseEvaluation)})


def _node_days(lines: list[Line]) -> float:
    return float(sum(line["node_days"] for line in lines))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="peerwatch_demo.simulator.evaluation", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("output", type=Path, metavar="OUT.jsonl", help="grows by a line per case")
    parser.add_argument("--family", choices=sorted(FAMILY_NAMES), default="soak")
    parser.add_argument("--seed", type=int, default=20_000, help="seed of the first case")
    much = parser.add_mutually_exclusive_group(required=True)
    much.add_argument("--cases", type=int, metavar="N", help="cases from the first seed on")
    much.add_argument("--node-days", type=float, metavar="D", help="stop when the file has so many")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings of the detector")
    parser.add_argument(
        "-j", "--processes", type=int, default=1, metavar="N", help="cases at a time"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
