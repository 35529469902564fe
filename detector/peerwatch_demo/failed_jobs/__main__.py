"""``python -m peerwatch_demo.failed_jobs FILE``: runs the jobs, and adds their logs to the file.

Those that the file has are not run again, so a run that was broken off goes on. 0: all failed as
they were made to. 1: some did not. 2: wrong use.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from peerwatch_common.progress import Progress
from peerwatch_demo.failed_jobs.case import load_cases
from peerwatch_demo.failed_jobs.neutral import neutral
from peerwatch_demo.failed_jobs.run import JobSucceededError, run_job
from peerwatch_responder.retry.corpus.labels import labels_of_mechanisms

if TYPE_CHECKING:
    from peerwatch_demo.failed_jobs.case import FailedJob


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m peerwatch_demo.failed_jobs", allow_abbrev=False
    )
    parser.add_argument("file", type=Path, help="JSON lines, one for each log")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these jobs")
    options = parser.parse_args()
    cases = load_cases()
    if unknown := sorted(set(options.only or ()) - {each.name for each in cases}):
        parser.error(f"--only: there is no job {', '.join(unknown)}; cases.yaml has their names")
    held = _ids(options.file)
    wanted = [each for each in cases if not options.only or each.name in options.only]
    left = [each for each in wanted if _id(each) not in held]
    failures = 0
    with Progress(sys.stderr, len(left), "job") as progress:
        for case in left:
            progress.describe(case.name)
            try:
                _append(options.file, case)
            except (JobSucceededError, OSError) as error:
                progress.write(f"peerwatch demo: {error}")
                failures += 1
            progress.advance()
    return 1 if failures else 0


def _id(case: FailedJob) -> str:
    return f"real/{case.name}"


def _ids(path: Path) -> set[str]:
    if not path.exists():
        return set()
    return {json.loads(line)["id"] for line in path.read_text().splitlines()}


def _append(path: Path, case: FailedJob) -> None:
    label, deterministic = labels_of_mechanisms()[case.mechanism]
    written, folder = run_job(case)
    row = {
        "id": _id(case),
        "mechanism": case.mechanism,
        "source": case.source,
        "origin": "real",
        "label": label,
        "deterministic": deterministic,
        "text": neutral(written, folder),
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
