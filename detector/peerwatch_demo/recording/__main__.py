"""Records the demo's faults as cases: ``python -m peerwatch_demo.recording FOLDER``.

Round after round the demo's real training job is broken by every fault the demo knows, on a node
drawn by lot; at the end it trains undisturbed for a while. FOLDER then holds the cases
(``cases/``), what the live detector said to each (``live.jsonl``), and its configuration
(``detector.yaml``). The same command again goes on where an earlier one ended.

0: all is recorded. 1: something broke. 2: wrong use. 130 and 143: ended by Ctrl-C or by SIGTERM.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from peerwatch_demo.cluster.cluster import node_names
from peerwatch_demo.cluster.faults import FAULTS, Fault, FaultError, choose_fault
from peerwatch_demo.cluster.namespaces import why_unavailable
from peerwatch_demo.cluster.nodes import Place
from peerwatch_demo.cluster.settings import Settings
from peerwatch_demo.recording.live import HEALTHY, LiveLog, RecordError, table
from peerwatch_demo.recording.round import Folder, Round
from peerwatch_demo.stack.console import Console
from peerwatch_demo.stack.process import StackError
from peerwatch_demo.stack.signals import catch_signals, exit_code

_ROOT = Path(__file__).resolve().parents[3]
# Stacks that one round may take until it is given up. Chosen: one may fail by chance.
_TRIES = 3


def main(arguments: list[str] | None = None) -> int:
    """Record until all is there and return the exit code."""
    options = _parser().parse_args(arguments)
    no_namespaces = why_unavailable()
    log = LiveLog(options.folder / "live.jsonl")
    try:
        faults = chosen_faults(options.fault, no_namespaces)
        _make(options.folder)
        log.load()
    except (FaultError, RecordError) as error:
        print(f"peerwatch_demo.recording: {error}", file=sys.stderr)
        return 2
    console = Console(sys.stdout, os.environ)
    catch_signals()
    recorder = Recorder(Folder(options.folder), log, console, namespaces=no_namespaces is None)

    def record() -> int:
        for number in range(1, options.rounds + 1):
            recorder.faults(number, faults, options.seed)
        if options.healthy_minutes > 0:
            # A round of its own: the number after the last.
            recorder.healthy(options.rounds + 1, options.healthy_minutes)
        return 0

    code = exit_code(record, console)
    if log.lines:
        console.text(f"\n{table(log.lines)}")
    return code


class Recorder:
    """Runs the rounds that are not done yet.

    Parameters
    ----------
    folder, log
        Where cases and live findings go.
    console
        The terminal.
    namespaces
        Whether nodes have networks of their own.
    """

    def __init__(self, folder: Folder, log: LiveLog, console: Console, *, namespaces: bool) -> None:
        self._folder = folder
        self._log = log
        self._console = console
        self._namespaces = namespaces

    def faults(self, number: int, faults: Sequence[Fault], seed: str | None) -> None:
        """Record what a round lacks.

        Raises
        ------
        StackError
            If it breaks again and again.
        """
        order = draw(faults, number, seed)
        for attempt in range(1, _TRIES + 1):
            missing = [
                planned for planned in order if planned[0].name not in self._log.done(number)
            ]
            if not missing:
                return
            names = ", ".join(fault.name for fault, _ in missing)
            self._console.line(f"round {number}: {names}", "event")
            try:
                self._round(number).faults(missing, namespaces=self._namespaces)
            except StackError as error:
                if attempt == _TRIES:
                    raise
                self._console.line(f"round {number} broke off and begins anew: {error}", "bad")

    def healthy(self, number: int, minutes: float) -> None:
        """Record the healthy case, unless there is one.

        Raises
        ------
        StackError
            If its stack breaks.
        """
        if not any(line.kind == HEALTHY for line in self._log.lines):
            self._round(number).healthy(minutes, namespaces=self._namespaces)

    def _round(self, number: int) -> Round:
        return Round(number, self._folder, self._log, Place(_ROOT), self._console)


def chosen_faults(names: Sequence[str] | None, no_namespaces: str | None) -> list[Fault]:
    """Return the faults of these names, or all.

    Raises
    ------
    FaultError
        If one does not exist or needs namespaces.
    """
    wanted = names or [fault.name for fault in FAULTS]
    return [choose_fault(name, no_namespaces=no_namespaces) for name in dict.fromkeys(wanted)]


def draw(faults: Sequence[Fault], number: int, seed: str | None) -> list[tuple[Fault, str]]:
    """Return the faults of a round in the order in which they are done, each with its node.

    Order and nodes are drawn by lot, the same for the same seed; what cannot be undone is last.
    """
    rng = random.Random(f"{seed}/{number}") if seed else random.SystemRandom()  # noqa: S311
    names = node_names(Settings().nodes)
    drawn = [(fault, rng.choice(names)) for fault in rng.sample(list(faults), len(faults))]
    return sorted(drawn, key=lambda planned: planned[0].undo is None)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"{folder}: cannot be made: {error.strerror}.") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="peerwatch_demo.recording", description="Record the demo's faults as cases."
    )
    parser.add_argument("folder", type=Path, help="where cases and live findings go")
    parser.add_argument("--rounds", type=_count, default=10, help="times every fault is done")
    parser.add_argument(
        "--healthy-minutes", type=_minutes, default=30.0, help="of healthy training; 0 for none"
    )
    parser.add_argument("--fault", action="append", metavar="NAME", help="only this; repeatable")
    parser.add_argument("--seed", help="the same text draws the same nodes")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 99:
        raise argparse.ArgumentTypeError(f"{text!r}: must be from 0 to 99")
    return number


def _minutes(text: str) -> float:
    number = float(text)
    if not (math.isfinite(number) and number >= 0):
        raise argparse.ArgumentTypeError(f"{text!r}: must be 0 or more")
    return number


if __name__ == "__main__":
    sys.exit(main())
