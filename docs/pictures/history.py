"""Four weeks of Slurm's accounting, drawn by lot, for the books of a fleet without a past.

Jobs of several sizes run in three parts of the fleet; nodes fail at random, one of them often.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

from peerwatch_reliability.sources.slurm.sacct import SEPARATOR

DAYS = 28
_DAY = 86_400.0
_GPUS = 8
# Failures per node-day: a bad cluster's, so that four weeks of seventeen nodes have some.
_RATE, _OFTEN = 0.03, 8
_SEED = 8
# Fields are parted by what is asked for, as Slurm does it.
_COMMAND = f"""#!/bin/sh
separator='|'
for each; do case $each in --delimiter=*) separator=${{each#*=}} ;; esac; done
exec sed "s/{SEPARATOR}/$separator/g" "$0.txt"
"""


def write(folder: Path, nodes: list[str]) -> None:
    """Write the commands ``sacct`` and ``sacctmgr``, which print such a history.

    Parameters
    ----------
    folder
        Does not exist yet.
    nodes
        Of the fleet; the last but two fails often.
    """
    folder.mkdir()
    rows: list[str] = []
    events: list[str] = []
    draw = random.Random(_SEED)  # noqa: S311 - the same history every time
    for part in range(3):
        members = nodes[part * len(nodes) // 3 : (part + 1) * len(nodes) // 3]
        _run_part(draw, members, nodes[-3], rows, events)
    for name, lines in (("sacct", rows), ("sacctmgr", events)):
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
        command = folder / name
        command.write_text(_COMMAND)
        command.chmod(0o755)


def _run_part(
    draw: random.Random, members: list[str], weak: str, rows: list[str], events: list[str]
) -> None:
    """Let jobs run one after another on a part of the fleet until now."""
    now = time.time()
    clock = now - DAYS * _DAY
    while clock < now:
        names = draw.sample(members, draw.choice((1, 2, 4, len(members))))
        name, job_id = draw.choice(("pretrain", "finetune", "eval")), str(1000 + len(rows))
        left = draw.uniform(0.2, 2.5) * _DAY
        while left > 0 and clock < now:
            submitted = clock
            start = clock + draw.expovariate(1 / 240)
            failure, node = min(_failures(draw, names, weak))
            failed = start + failure < min(start + left, now)
            clock = start + (failure if failed else left)
            state = "NODE_FAIL" if failed else "COMPLETED" if draw.random() < 0.9 else "FAILED"
            left -= clock - start
            if clock > now:
                return
            times = [f"{each:.0f}" for each in (submitted, submitted, start, clock)]
            rows.append(
                SEPARATOR.join(
                    (
                        *(job_id, job_id, "research", state, *times, "00:00:00"),
                        f"billing=1,gres/gpu={_GPUS * len(names)}",
                        *(",".join(sorted(names)), name, "/home/research", "ckpt=60", ""),
                        str(len(rows) + 1),
                    )
                )
            )
            if not failed:
                break
            event = (node, f"{clock:.0f}", f"{clock + 7200:.0f}", "DOWN*", "Not responding")
            events.append(SEPARATOR.join(event))
            clock += draw.uniform(60, 900)
    return


def _failures(draw: random.Random, names: list[str], weak: str) -> Iterator[tuple[float, str]]:
    for each in names:
        rate = _RATE * (_OFTEN if each == weak else 1)
        yield draw.expovariate(rate / _DAY), each
