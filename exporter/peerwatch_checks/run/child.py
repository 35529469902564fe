"""The process of one check: reads what to run from its input, writes outcomes to a pipe of its own.

Started by ``supervisor``. It prints and crashes as it likes: outcomes have their own descriptor.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerwatch_checks import check as contract
from peerwatch_checks.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_checks.check import Check

# The lowest priority there is.
_NICE = 19
# The kernel's OOM killer takes the check, rather than what the node is for.
_OOM_SCORE_ADJ = "1000"


def main() -> int:
    """Run the check that standard input names; 0 if it came to an end, whatever it found."""
    results, program = map(int, sys.argv[1:])
    job = json.loads(sys.stdin.read())
    guarded(program, Path(job["work_folder"]), results)
    _step_back(active=job["active"])
    with os.fdopen(results, "w", encoding="utf-8") as out:
        for line in _lines(job):
            out.write(json.dumps(line) + "\n")
            out.flush()
    return 0


def _step_back(*, active: bool) -> None:
    """Give way to everything else on the node.

    What only reads is over in a moment, and has to be over in time beside a job that uses all CPUs:
    it keeps its priority.
    """
    if active:
        os.nice(_NICE)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE_ADJ, encoding="ascii")


def _lines(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    try:
        check = _loaded(job["check"], Path(job["path"]))
        for outcome in check.run(_context(check, job)):
            yield asdict(outcome)
    except contract.Skip as reason:
        yield asdict(contract.Outcome("skipped", str(reason)))
    except Exception as error:
        yield asdict(contract.Outcome("error", f"{type(error).__name__}: {error}"))


def _loaded(name: str, path: Path) -> Check:
    """Return a check; only its own file is imported."""
    own = Path(contract.__file__).parent
    if path.is_relative_to(own):
        inside = path.relative_to(own.parent).with_suffix("")
        importlib.import_module(".".join(inside.parts))
    else:
        contract.load_file(path)
    return contract.registered(name)


def _context(check: Check, job: dict[str, Any]) -> contract.Context:
    gpus = job["gpus"]
    return contract.Context(
        options=contract.options_of(check, job["options"]),
        node=job["node"],
        work_folder=Path(job["work_folder"]),
        seconds=job["seconds"],
        attempt=job["attempt"],
        gpus=None if gpus is None else tuple(gpus),
        earlier={device: tuple(values) for device, values in job["earlier"].items()},
        peers={device: tuple(values) for device, values in job["peers"].items()},
        usual={device: contract.Usual(**usual) for device, usual in job["usual"].items()},
        procfs=Path(job["procfs"]),
        sysfs=Path(job["sysfs"]),
        rootfs=Path(job["rootfs"]),
    )


if __name__ == "__main__":
    # Imported as itself, so that Skip is the class that checks raise.
    sys.exit(main())
