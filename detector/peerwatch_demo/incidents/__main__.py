"""Measures the root diagnosis on incidents: ``python -m peerwatch_demo.incidents``.

Prints how often it names the right hosts and the right domain, and isolates a healthy host, for
development, validation and recorded jobs apart. ``--write FOLDER`` writes the incidents as cases
instead, for ``peerwatch-detector diagnose``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from peerwatch_common.errors import ConfigError
from peerwatch_common.progress import Progress
from peerwatch_demo.incidents.incident import Incident
from peerwatch_demo.incidents.measure import Evaluation, evaluate, table
from peerwatch_demo.incidents.mechanism import PARTS, Mechanism, load_mechanisms
from peerwatch_demo.incidents.recorded_jobs import PART as RECORDED
from peerwatch_demo.incidents.recorded_jobs import load_recorded
from peerwatch_demo.incidents.story import play


def main(arguments: list[str] | None = None) -> int:
    """Measure and print the tables, or write cases."""
    options = _parser().parse_args(arguments)
    try:
        chosen = _chosen(options)
        total = len(chosen) * options.incidents
        with Progress(sys.stderr, total, "incident") as progress:
            incidents = _played(chosen, options, progress)
            if options.write is not None:
                for incident in incidents:
                    incident.write(options.write / incident.name)
                return 0
            evaluations = [evaluate(incident) for incident in incidents]
        if options.part in ("all", RECORDED) and not options.only:
            evaluations += [evaluate(incident) for incident in load_recorded()]
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    if options.output is not None:
        options.output.write_text("".join(json.dumps(_line(each)) + "\n" for each in evaluations))
    sys.stdout.write(table(evaluations, mechanisms=options.mechanisms))
    return 0


def _chosen(options: argparse.Namespace) -> list[Mechanism]:
    known = {mechanism.name: mechanism for mechanism in load_mechanisms()}
    if unknown := sorted(set(options.only) - set(known)):
        raise ConfigError([f"--only {unknown[0]}: is no mechanism; there are {', '.join(known)}."])
    parts = PARTS if options.part == "all" else (options.part,)
    return [
        mechanism
        for mechanism in known.values()
        if mechanism.part in parts and (not options.only or mechanism.name in options.only)
    ]


def _played(
    chosen: list[Mechanism], options: argparse.Namespace, progress: Progress
) -> Iterator[Incident]:
    for mechanism in chosen:
        for seed in range(options.seed, options.seed + options.incidents):
            yield play(mechanism, seed)
            progress.advance(1)


def _line(evaluation: Evaluation) -> dict[str, object]:
    """Return a line of the file: sets as lists."""
    plain = asdict(evaluation)
    said = plain.pop("said")
    return {
        **plain,
        "healthy_isolated": sorted(evaluation.healthy_isolated),
        **{name: sorted(value) for name, value in said.items()},
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="peerwatch_demo.incidents", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--part", choices=("all", *PARTS, RECORDED), default="all")
    parser.add_argument("--only", nargs="*", default=[], metavar="MECHANISM")
    parser.add_argument("--incidents", type=int, default=5, metavar="N", help="of each mechanism")
    parser.add_argument("--seed", type=int, default=70_000, help="of the first incident")
    parser.add_argument("--mechanisms", action="store_true", help="a row for each mechanism, too")
    parser.add_argument("--output", type=Path, metavar="FILE", help="a line of JSON per incident")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write case folders instead")
    return parser


if __name__ == "__main__":
    sys.exit(main())
