"""Replays failed jobs: ``python -m peerwatch_demo.retries``.

Jobs that failed, with Philly's mix of reasons and of GPU time until the failure, are started again
by each policy: always, three times at most; never; as their logs advise; and as one would who knew
which can succeed. Every policy has the same jobs, and the same fate of each attempt.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from peerwatch_common.progress import Progress
from peerwatch_demo.retries.failed_job import failed_jobs
from peerwatch_demo.retries.policies import Advised, always, knowing, never
from peerwatch_demo.retries.reasons import load_reasons
from peerwatch_demo.retries.replay import replay
from peerwatch_demo.retries.report import rows, table
from peerwatch_responder.retry.assessment.knowledge import load_knowledge

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerwatch_demo.retries.policies import Policy
    from peerwatch_demo.retries.replay import Outcome

ALWAYS = "always, 3 times"
# Any will do that is the same every time.
_FIRST_SEED = 1


def main(arguments: list[str] | None = None) -> int:
    """Replay, and print the table."""
    options = _parser().parse_args(arguments)
    reasons, knowledge = load_reasons(), load_knowledge()
    makers: dict[str, Callable[[], Policy]] = {
        ALWAYS: lambda: always,
        "never": lambda: never,
        "advised": lambda: Advised(knowledge),
        "knowing which can succeed": lambda: knowing,
    }
    outcomes: dict[str, list[Outcome]] = {name: [] for name in makers}
    seeds = range(options.seed, options.seed + options.seeds)
    try:
        with Progress(sys.stderr, len(seeds) * len(makers), "replay") as progress:
            for seed in seeds:
                jobs = failed_jobs(reasons, options.jobs, seed)
                for name, make in makers.items():
                    outcomes[name].append(replay(jobs, make()))
                    progress.advance()
    except KeyboardInterrupt:
        return 130
    found = rows(outcomes, ALWAYS)
    sys.stdout.write(table(found))
    if options.output is not None:
        text = {
            name: [{"seed": seed, **_plain(run)} for seed, run in zip(seeds, each, strict=True)]
            for name, each in outcomes.items()
        }
        options.output.write_text(json.dumps(text, indent=1) + "\n")
    if options.picture is not None:
        from peerwatch_demo.retries.picture import picture  # noqa: PLC0415 - matplotlib

        options.picture.write_text(picture(found))
    return 0


def _plain(outcome: Outcome) -> dict[str, object]:
    return {
        "jobs": outcome.jobs,
        "retries": outcome.retries,
        "recovered": outcome.recovered,
        "wasted": outcome.wasted,
        "wasted_by_reason": outcome.wasted_by_reason,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m peerwatch_demo.retries",
        description="Replay failed jobs by each policy of retries.",
        allow_abbrev=False,
    )
    parser.add_argument("--jobs", type=_count, default=1000, metavar="N", help="failed jobs")
    parser.add_argument("--seed", type=int, default=_FIRST_SEED, metavar="N", help="the first one")
    parser.add_argument("--seeds", type=_count, default=5, metavar="N", help="how many")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write all numbers as JSON")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="write the picture as SVG")
    return parser


def _count(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
