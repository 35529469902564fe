"""Plays real faults and records them: ``python -m peerwatch_demo.incidents.real.record FOLDER``.

Four ranks, each a node of its own, on this machine. What they write is kept line by line with the
time at which it was seen, and how they end; the rest of a job is ended some seconds after its first
failure, as launchers do. Names and paths of this machine are replaced. Needs root, for a small
filesystem.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path

from peerwatch_demo.incidents.real.ranks import BAD_RANK, train

FAULTS = (
    "exception",
    "exception_all",
    "nan_all",
    "import_error",
    "file_missing",
    "exit_without_a_word",
    "memory_limit",
    "wrong_shape",
    "other_collective",
    "leaves_early",
    "segmentation_fault",
    "killed",
    "hangs",
    "port_in_use",
    "disk_full",
    "healthy",
)
NODES = ("node-a", "node-b", "node-c", "node-d")
# Chosen: many times what a job takes; after the first end its time-out of 20 s and some; and a look
# as often as a step.
_LIMIT_SECONDS, _GRACE_SECONDS, _POLL_SECONDS = 240.0, 30.0, 0.05
# Of one log: a traceback of ten levels has forty lines, and a sentence has fewer characters.
_MOST_LINES, _LONGEST_LINE = 50, 300
_PATHS = re.compile(r"/[^\s\"':]*?/(?:site|dist)-packages/")
_SOURCES = re.compile(r"/[^\s\"':]*?/peerwatch_demo/incidents/real/")


def record(fault: str) -> dict[str, object]:
    """Play a fault and return what was seen, in seconds since the job began."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scratch = folder / "scratch"
        scratch.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(scratch)], check=True)
        try:
            return _recorded(fault, folder, scratch)
        finally:
            subprocess.run(["umount", str(scratch)], check=True)


def _recorded(fault: str, folder: Path, scratch: Path) -> dict[str, object]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    start = time.monotonic()
    running = {_forked(fault, rank, port, folder, scratch): rank for rank in range(len(NODES))}
    ends: dict[str, list[object]] = {}
    lines: list[list[object]] = []
    read = dict.fromkeys(range(len(NODES)), 0)
    first_end = float("inf")
    while running:
        now = round(time.monotonic() - start, 2)
        for rank in read:
            read[rank] = _follow(folder / f"{rank}.log", rank, read[rank], now, lines)
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended in running:
            ends[str(running.pop(ended))] = [now, os.waitstatus_to_exitcode(status)]
            first_end = min(first_end, now)
        elif now > min(first_end + _GRACE_SECONDS, _LIMIT_SECONDS):
            for process in running:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGTERM)
        time.sleep(_POLL_SECONDS)
    now = round(time.monotonic() - start, 2)
    for rank in read:
        _follow(folder / f"{rank}.log", rank, read[rank], now, lines)
    bad = 0 if fault == "port_in_use" else BAD_RANK
    return {
        "fault": fault,
        "seconds": now,
        "nodes": list(NODES),
        "bad_node": NODES[bad],
        "ends": ends,
        "lines": [[*line[:2], _scrubbed(str(line[2]), folder)] for line in _shortened(lines)],
    }


def _forked(fault: str, rank: int, port: int, folder: Path, scratch: Path) -> int:
    """Start a rank, which writes to a log of its own; torch was imported before."""
    process = os.fork()
    if process:
        return process
    log = os.open(folder / f"{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        train(fault, rank, len(NODES), port, scratch)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _follow(log: Path, rank: int, at: int, now: float, lines: list[list[object]]) -> int:
    """Take the whole lines that are new, and return how far the log is read."""
    if not log.exists():
        return at
    data = log.read_bytes()[at:]
    end = data.rfind(b"\n") + 1
    lines += [[now, rank, line] for line in data[:end].decode("utf-8", "replace").splitlines()]
    return at + end


def _shortened(lines: list[list[object]]) -> list[list[object]]:
    """Keep the last lines of each rank."""
    kept = []
    for rank in range(len(NODES)):
        kept += [line for line in lines if line[1] == rank][-_MOST_LINES:]
    return sorted(kept, key=lambda line: (float(str(line[0])), int(str(line[1]))))


def _scrubbed(line: str, folder: Path) -> str:
    line = _PATHS.sub("/opt/venv/lib/python3/site-packages/", line)
    line = _SOURCES.sub("/workspace/", line).replace(str(folder), "/run/job")
    return line.replace(socket.gethostname(), "host")[:_LONGEST_LINE]


def main(arguments: list[str] | None = None) -> int:
    """Record the named faults, or all, into a folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("faults", nargs="*", metavar="FAULT", default=FAULTS)
    options = parser.parse_args(arguments)
    for fault in options.faults:
        seen = record(fault)
        text = json.dumps(seen, indent=None, ensure_ascii=False).replace("], [", "],\n[")
        (options.folder / f"{fault}.json").write_text(text + "\n")
        print(fault, seen["ends"], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
