"""Advice on a failed job whose log has 1 MB, beside grep with the same signatures."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.logs import training_log
from bench.measurement import Goal, Measurement, alone, commands_in_turns
from bench.plain_log import GREP, grep
from bench.signatures import ERRORS

_SIZE = 1_000_000


def measurements(_options: argparse.Namespace) -> Iterator[Measurement]:
    """Yield wall and CPU time of the whole command, its start included."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "rank-3.log"
        log.write_bytes(training_log(1, _SIZE) + b"\n".join(ERRORS) + b"\n")
        advise = [sys.executable, "-m", "peerwatch_responder", "advise", str(log)]
        advise += ["--no-history", "--json"]
        empty = "import sys; open(sys.argv[1], 'rb').read()"
        commands = (
            advise,
            grep(Path(directory), log),
            [sys.executable, "-c", empty, str(log)],
        )
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        # 0, 10, 11, 20 and 21 are advice, 0 and 1 of grep lines or none.
        runs = commands_in_turns(commands, 5, statuses=(0, 1, 10, 11, 20, 21))
    names = (GREP, "Python reads the file")
    yield Measurement(
        "responder, advise on 1 MB of log, whole command",
        "s",
        *(runs[0].wall, runs[1].wall, names[0], runs[2].wall, names[1]),
        goals=(Goal(1),),
    )
    yield Measurement(
        "responder, advise on 1 MB of log, CPU",
        "s CPU",
        *(runs[0].cpu, runs[1].cpu, names[0], runs[2].cpu, names[1]),
    )


if __name__ == "__main__":
    alone(measurements)
