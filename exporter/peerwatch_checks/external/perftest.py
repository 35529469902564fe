"""Runs ``ib_write_bw`` between two RDMA devices of this node, and reads the average."""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import dataclass

from peerwatch_checks.external.command import run

# Its own time to listen before the client is started: it says nothing when it does. Chosen: half of
# it, then half a second more at each try, are 7.5 s in all.
_LISTEN_SECONDS = 1.0
_TRIES = 5
# bytes, iterations, peak, average, message rate
_ROW = re.compile(r"^\s*\d+\s+\d+\s+(\d+\.?\d*)\s+(\d+\.?\d*)\s+\d+\.?\d*\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """What came of it.

    Parameters
    ----------
    gigabits
        The average, Gb/s; None if it failed.
    failure
        Why it did; empty if it did not.
    """

    gigabits: float | None
    failure: str = ""


def average(text: str) -> float | None:
    """Return the average bandwidth, Gb/s, that perftest printed with ``--report_gbits``."""
    rows = _ROW.findall(text)
    return float(rows[-1][1]) if rows else None


def write_bandwidth(
    program: str, server: str, client: str, *, port: int, seconds: float, megabytes: int = 8
) -> Bandwidth:
    """Measure RDMA writes from one device to another of this node, or to itself.

    Parameters
    ----------
    program
        Path of ``ib_write_bw``.
    server, client
        Devices, such as ``mlx5_0``.
    port
        TCP port of 127.0.0.1 by which both meet.
    seconds
        Until then both have ended.
    megabytes
        Size of a message, MiB.
    """
    common = [program, "-s", str(megabytes << 20), "-F", "--report_gbits", "-p", str(port)]
    deadline = time.monotonic() + seconds
    listening = subprocess.Popen(
        [*common, "-d", server],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for turn in range(_TRIES):
            time.sleep(_LISTEN_SECONDS * (1 + turn) / 2)
            if listening.poll() is not None:
                return Bandwidth(None, f"the server on {server} ended with {listening.returncode}")
            left = deadline - time.monotonic()
            said = run([*common, "-d", client, "127.0.0.1"], max(left, 0.1))
            if said.status is None:
                return Bandwidth(None, f"no answer in {seconds:.0f} s")
            found = average(said.output)
            if found is not None and said.status == 0:
                return Bandwidth(found)
            if "connect" not in said.errors.lower() + said.output.lower():
                break
    finally:
        listening.kill()
        listening.wait()
    return Bandwidth(None, said.last_line() or f"ib_write_bw ended with {said.status}")
