"""``peerwatch-detector diagnose CASE``: the root of the failure in recorded cases."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from peerwatch_common.logs import one_line
from peerwatch_detector.diagnosis.root.algorithm.algorithm import find_root
from peerwatch_detector.diagnosis.root.answer import root_json, root_text
from peerwatch_detector.diagnosis.root.evidence.recorded import RecordedEvents, load_events
from peerwatch_detector.errors import CaseError


def diagnose_cases(
    folders: Sequence[Path], at: float | None, *, as_json: bool, stacks: bool = False
) -> int:
    """Print the root of the failure in each case, from its events.

    Parameters
    ----------
    folders
        Folders with a ``case.json``.
    at
        Seconds from the start of the case; what was seen later is left out. None for all.
    as_json
        One JSON object per line instead of text.
    stacks
        Whether stacks are asked for, which no case has: that is refused.

    Returns
    -------
    int
        0; 2 if a case is broken: it is named, and the others are diagnosed; 2 if stacks are asked
        for.
    """
    if stacks:
        sys.stderr.write(
            "peerwatch-detector: --stacks asks the exporters of ranks that run now, and a recorded "
            f"case ({one_line(str(folders[0]))}) has none; leave --stacks out, or give --job-id of "
            "a running job in place of the case.\n"
        )
        return 2
    broken = 0
    for folder in folders:
        try:
            case = load_events(folder)
        except CaseError as error:
            sys.stderr.write(f"peerwatch-detector: {one_line(str(error))}\n")
            broken += 1
            continue
        sys.stdout.write(_shown(case, at, as_json=as_json) + "\n")
    return 2 if broken else 0


def _shown(case: RecordedEvents, at: float | None, *, as_json: bool) -> str:
    until = float("inf") if at is None else at
    root = find_root(case.job, case.events, job_id=case.job_id, until=until)
    if not any(event.time <= until for event in case.events):
        when = "" if at is None else f" of the first {at:g} s"
        text = f"The case holds no events{when}: nothing was observed that could be weighed."
        root = replace(root, missing=(*root.missing, text))
    if as_json:
        return json.dumps({"case": case.name, "job_id": case.job_id, **root_json(root, case.job)})
    return f"{one_line(case.name)}, job {one_line(case.job_id)}:\n{root_text(root, case.job)}\n"
