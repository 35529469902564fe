"""Measures the detector on real jobs: ``python -m peerwatch_demo.live FILE``.

Every fault of ``faults.py`` is done to real training jobs of 4 to 8 ranks at production settings,
each several times, and then nothing is done for an hour. FILE gets a JSON line for each run; the
same command again goes on where an earlier one ended. ``make evaluate LIVE=1`` runs it.

0: all is measured. 1: something broke. 2: wrong use. 130 and 143: ended by Ctrl-C or by SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

from peerwatch_demo.cluster.namespaces import why_unavailable
from peerwatch_demo.cluster.nodes import Place
from peerwatch_demo.live.faults import LiveFault, chosen
from peerwatch_demo.live.log import HEALTH, Run, RunLog, table
from peerwatch_demo.live.run import LiveRun
from peerwatch_demo.stack.console import Console
from peerwatch_demo.stack.process import StackError
from peerwatch_demo.stack.signals import catch_signals, exit_code

_ROOT = Path(__file__).resolve().parents[3]
# The fewest of which peers tell the odd one, and the most that two cores can serve.
_FEWEST_RANKS, _MOST_RANKS = 4, 8
# Clusters that a run may take until the evaluation is given up. Chosen: one may fail by chance.
_TRIES = 3


def main(arguments: list[str] | None = None) -> int:
    """Measure what is not measured yet and return the exit code."""
    options = _parser().parse_args(arguments)
    no_namespaces = why_unavailable()
    log = RunLog(options.file)
    try:
        faults = chosen(options.fault, namespaces=no_namespaces is None)
        log.load()
    except (OSError, ValueError) as error:
        print(f"peerwatch_demo.live: {error}", file=sys.stderr)
        return 2
    console = Console(sys.stdout, os.environ)
    if no_namespaces is not None:
        console.text(f"Without faults of the network: {no_namespaces}.", "bad")
    catch_signals()

    def measure() -> int:
        _measure(options, faults, log, console, namespaces=no_namespaces is None)
        return 0

    code = exit_code(measure, console)
    if log.runs:
        console.text(f"\n{table(log.runs)}")
    return code


def _measure(
    options: argparse.Namespace,
    faults: list[LiveFault],
    log: RunLog,
    console: Console,
    *,
    namespaces: bool,
) -> None:
    for repeat in range(1, options.repeats + 1):
        for fault in faults:
            if log.has(fault.name, repeat):
                continue
            ranks, place = draw(options.seed, fault.name, repeat)
            console.line(f"{fault.name}, {repeat} of {options.repeats}: {ranks} ranks", "event")
            log.add(_run(console, ranks, namespaces, options.backend, fault, repeat, place))
    if options.health_minutes > 0 and not log.has(HEALTH, 1):
        with tempfile.TemporaryDirectory(prefix="peerwatch-live-") as directory:
            cluster = LiveRun(
                *(Place(_ROOT), Path(directory), console, _MOST_RANKS),
                namespaces=namespaces,
                backend=options.backend,
            )
            log.add(cluster.health(options.health_minutes))


def _run(
    console: Console,
    ranks: int,
    namespaces: bool,
    backend: str,
    fault: LiveFault,
    repeat: int,
    place: int,
) -> Run:
    for attempt in range(1, _TRIES + 1):
        with tempfile.TemporaryDirectory(prefix="peerwatch-live-") as directory:
            cluster = LiveRun(
                *(Place(_ROOT), Path(directory), console, ranks),
                namespaces=namespaces,
                backend=backend,
            )
            try:
                return cluster.fault(fault, repeat, place)
            except StackError as error:
                if attempt == _TRIES:
                    raise
                console.line(f"begins anew: {error}", "bad")
    raise AssertionError("the last try returns or raises")


def draw(seed: str, fault: str, repeat: int) -> tuple[int, int]:
    """Return the size of a job and the place of the faulty node, the same for the same seed."""
    rng = random.Random(f"{seed}/{fault}/{repeat}")  # noqa: S311 - a lot, not a secret
    ranks = rng.randint(_FEWEST_RANKS, _MOST_RANKS)
    return ranks, rng.randrange(ranks)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="peerwatch_demo.live", description="Measure the detector on real jobs."
    )
    parser.add_argument("file", type=Path, help="JSON lines, one per run; goes on if it is there")
    parser.add_argument("--repeats", type=int, default=3, help="times every fault is done")
    parser.add_argument(
        "--health-minutes", type=float, default=60.0, help="of healthy training; 0 for none"
    )
    parser.add_argument("--fault", action="append", metavar="NAME", help="only this; repeatable")
    parser.add_argument(
        "--backend",
        choices=("gloo", "nccl"),
        default="gloo",
        help="nccl: all ranks on this machine's first GPU (default: %(default)s)",
    )
    parser.add_argument("--seed", default="70000", help="the same text draws the same nodes")
    return parser


if __name__ == "__main__":
    sys.exit(main())
