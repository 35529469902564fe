"""Writes the counters of one rank for the Peerwatch exporter: call it about once a second."""

import json
import os
import time
from pathlib import Path


def write_counters(directory: str, rank: int, groups: list[dict[str, object]]) -> None:
    """Replace ``rank-<rank>.counters.json`` as a whole, so that nobody reads half of it."""
    document = {"rank": rank, "time": time.time(), "groups": groups}
    temporary = Path(directory, f".rank-{rank}.counters.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(document), encoding="utf-8")
    temporary.replace(Path(directory, f"rank-{rank}.counters.json"))


if __name__ == "__main__":
    reduced = {"launched": 1041, "completed": 1040, "duration_seconds": 12.5, "bytes": 109051904}
    group: dict[str, object] = {
        "name": "dp0",
        "members": "0-7",
        "launched": 1041,
        "completed": 1040,
        "in_flight": {"since": time.time() - 7, "collective": "all_reduce", "input": "[26214400]"},
        "work_requests": {"posted": 5120, "completed": 5119},
        "collectives": {"all_reduce": reduced},
    }
    write_counters(os.environ["PEERWATCH_HEARTBEAT_DIR"], int(os.environ["RANK"]), [group])
