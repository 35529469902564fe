"""Runs Slurm's commands, each within its time, and never believes half an answer."""

from __future__ import annotations

import io
import subprocess
import threading
from typing import TYPE_CHECKING

from peerwatch_common.logs import one_line
from peerwatch_reliability.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Of what a command writes as errors: chosen, some lines.
_SHOWN_CHARACTERS = 300


def lines_of(
    folder: Path, configuration: Path | None, timeout_seconds: float, program: str, *arguments: str
) -> Iterator[str]:
    """Yield the lines that a command prints, without their ends, as it prints them.

    Parameters
    ----------
    folder
        Where the commands are.
    configuration
        Slurm's settings; None: where the commands look for them.
    timeout_seconds
        Longest run.
    program, arguments
        The command.

    Raises
    ------
    SourceError
        If it cannot be started, fails, or does not end in time; also after lines were yielded.
    """
    # None of our environment: it may name another cluster. Times come as Unix seconds, UTC is
    # what our own times are read as.
    environment = {
        "PATH": f"{folder}:/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "SLURM_TIME_FORMAT": "%s",
    }
    if configuration is not None:
        environment["SLURM_CONF"] = str(configuration)
    try:
        child = subprocess.Popen(
            [str(folder / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
    except OSError as error:
        raise SourceError(f"{folder / program}: {error.strerror}; see slurm.folder") from error
    late = threading.Event()

    def end() -> None:
        late.set()
        child.kill()

    timer = threading.Timer(timeout_seconds, end)
    timer.start()
    errors: list[bytes] = []
    # It must not wait for us to read what it complains of.
    complaints = child.stderr or io.BytesIO()
    reader = threading.Thread(target=lambda: errors.append(complaints.read()), daemon=True)
    reader.start()
    try:
        for line in child.stdout or ():
            yield line.removesuffix(b"\n").decode(errors="replace")
        status = child.wait()
        reader.join()
    finally:
        timer.cancel()
        child.kill()
        child.wait()
        reader.join()
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
    if late.is_set():
        raise SourceError(f"{program} did not end within {timeout_seconds:g} s; see slurm.timeout")
    if status != 0:
        text = one_line(b"".join(errors).decode(errors="replace").strip())[:_SHOWN_CHARACTERS]
        raise SourceError(f"{program} ends with status {status}: {text or 'without a word'}")
