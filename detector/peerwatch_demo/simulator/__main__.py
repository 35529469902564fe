"""Writes simulated cases: ``python -m peerwatch_demo.simulator --family hard FOLDER``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from peerwatch_demo.simulator.case import simulate_seed, write_case
from peerwatch_demo.simulator.family import FAMILY_NAMES
from peerwatch_demo.simulator.fine import FINE, simulate_fine
from peerwatch_detector.backtest.cases import save_case

# The family whose samples are finer than a second.
_FINE = "fine"


def main(arguments: list[str] | None = None) -> int:
    """Write cases, every other one healthy; the same seed gives the same cases."""
    options = _parser().parse_args(arguments)
    try:
        for index in range(options.cases):
            _write(options.folder, options.family, options.seed + index, faulty=index % 2 == 0)
    except KeyboardInterrupt:
        return 130
    return 0


def _write(folder: Path, family: str, seed: int, *, faulty: bool) -> None:
    name = f"{family}-{seed}"
    if family == _FINE:
        save_case(simulate_fine(name, FINE, seed, faulty=faulty), folder / name)
    else:
        write_case(simulate_seed(family, seed, faulty=faulty), folder / name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="peerwatch_demo.simulator", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the case folders go")
    parser.add_argument("--family", choices=sorted([*FAMILY_NAMES, _FINE]), default="hard")
    parser.add_argument("--cases", type=int, default=20, metavar="N")
    parser.add_argument("--seed", type=int, default=20_000, help="seed of the first case")
    return parser


if __name__ == "__main__":
    sys.exit(main())
