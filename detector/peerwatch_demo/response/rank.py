"""What a launcher starts on a node: it becomes the node's rank of the training job.

    python rank.py JOB.json --node node-3 --rank 3 --ranks 8 --first node-0 --attempt 1

Slurm's srun and the demo's own driver start it alike; all that they do not know stands in the job's
file. It runs without Peerwatch's packages on the module path.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

# Ends a rank whose demo was killed, and all others of the same Slurm, which would live on.
_GUARD = """
while [ -d "/proc/$1" ] && [ -d "/proc/$2" ]; do sleep 1; done
[ -d "/proc/$1" ] && exit
kill -9 "$2"
[ -n "$3" ] || exit
# Twice: amid an exec a process shows no environment.
for turn in 1 2; do
    for file in $(grep -lzxF "SLURM_CONF=$3" /proc/[0-9]*/environ 2>/dev/null); do
        pid=${file#/proc/}
        [ "${pid%/environ}" = "$$" ] || kill -9 "${pid%/environ}"
    done
    sleep 1
done
"""


def main(arguments: list[str] | None = None) -> None:
    """Read the job's file, leave the process id and the log where others find them, and exec."""
    parser = argparse.ArgumentParser(description="Becomes a rank of the demo's training job.")
    parser.add_argument("job", type=Path, help="the job's file")
    parser.add_argument("--node", required=True, help="the node's name")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--first", required=True, help="the node of rank 0")
    parser.add_argument("--attempt", type=int, default=0, help="how often it was started before")
    options = parser.parse_args(arguments)
    job = json.loads(options.job.read_text())
    folder = Path(job["nodes"][options.node]["folder"])
    environment = {
        **os.environ,
        **job["environment"],
        **job["nodes"][options.node]["environment"],
        "RANK": str(options.rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(options.ranks),
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": job["nodes"][options.first]["address"],
        # A port of its own for each attempt: connections of the one before may linger.
        "MASTER_PORT": str(job["ports"][options.attempt % len(job["ports"])]),
    }
    with (folder / "rank.log").open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    _write(folder / "rank.pid", str(os.getpid()))
    if options.rank == 0:
        _write(Path(job["first_rank"]), str(folder / "rank.log"))
    subprocess.Popen(
        [
            *("/bin/sh", "-c", _GUARD, "guard", str(job["demo"]), str(os.getpid())),
            os.environ.get("SLURM_CONF", ""),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.execve(sys.executable, [sys.executable, "-P", *job["command"]], environment)  # noqa: S606


def _write(path: Path, text: str) -> None:
    """Write a small file that is read meanwhile."""
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(path)


if __name__ == "__main__":
    main()
