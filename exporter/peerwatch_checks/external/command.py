"""Runs a program of somebody else, and ends it in time."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from peerwatch_checks.check import Skip

# Prologs run without PATH; these are where packages and vendors put programs.
_FOLDERS = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/opt/perftest/bin"
# Chosen: many times what dcgmi writes of eight GPUs.
_MOST_BYTES = 8 << 20
# As the program itself gives a check to end (supervisor.GRACE_SECONDS).
_KILL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Said:
    """What a program said.

    Parameters
    ----------
    output, errors
        At most 8 MiB of each.
    status
        Its exit status, negative for a signal; None: it was ended for taking too long.
    """

    output: str
    errors: str
    status: int | None

    def last_line(self) -> str:
        """Return the last line that says something, errors first; empty if none does."""
        for text in (self.errors, self.output):
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            if lines:
                return lines[-1][:300]
        return ""


def find_program(name: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the path of a program.

    Raises
    ------
    Skip
        If it is not installed.
    """
    path = (os.environ if environment is None else environment).get("PATH", "")
    found = shutil.which(name, path=os.pathsep.join(filter(None, (path, _FOLDERS))))
    if found is None:
        raise Skip(f"{name} is not installed.")
    return found


def run(command: Sequence[str], seconds: float) -> Said:
    """Run a program; what it leaves running is ended with the check's process group.

    Parameters
    ----------
    command
        The program and its arguments; no shell.
    seconds
        Until then it has ended, or it is killed.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "LC_ALL": "C"},
    )
    try:
        output, errors = process.communicate(timeout=seconds)
        status: int | None = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        status = None
        try:
            output, errors = process.communicate(timeout=_KILL_SECONDS)
        except subprocess.TimeoutExpired as late:
            # What it has started holds its pipes; it is ended with the check.
            output, errors = late.output or b"", late.stderr or b""
    return Said(_text(output), _text(errors), status)


def _text(data: bytes) -> str:
    return data[:_MOST_BYTES].decode(errors="replace")
