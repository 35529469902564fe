"""Writes simulated cases: ``python -m peerwatch_demo.simulator --family hard FOLDER``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from peerwatch_demo.simulator.case import simulate, write_case
from peerwatch_demo.simulator.family import FAMILIES


def main(arguments: list[str] | None = None) -> int:
    """Write cases, every other one healthy; the same seed gives the same cases."""
    options = _parser().parse_args(arguments)
    family = FAMILIES[options.family]
    for index in range(options.cases):
        name = f"{options.family}-{options.seed + index}"
        case = simulate(name, family, options.seed + index, faulty=index % 2 == 0)
        write_case(case, options.folder / name)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="peerwatch_demo.simulator", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the case folders go")
    parser.add_argument("--family", choices=sorted(FAMILIES), default="hard")
    parser.add_argument("--cases", type=int, default=20, metavar="N")
    parser.add_argument("--seed", type=int, default=20_000, help="seed of the first case")
    return parser


if __name__ == "__main__":
    sys.exit(main())
