"""Reads logs named on the command line: files, folders of them, and standard input."""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from peerwatch_common.errors import PeerwatchError
from peerwatch_responder.retry.reading import elastic
from peerwatch_responder.retry.reading.bounded import LARGEST, TOTAL_BYTES, read_ends, read_stream
from peerwatch_responder.retry.reading.log_text import LogText, rank_in_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from peerwatch_responder.retry.reading.bounded import Bound

STDIN = "-"
# Chosen: output and errors of 8,192 ranks; at 64 KiB each (bounded.py) they take 1 GiB.
MOST_FILES = 16_384
# What a folder is searched for: logs of launchers, of schedulers and of containers.
_LOG_NAME = re.compile(
    r"(?:.*\.(?:log|out|err|txt|stdout|stderr)(?:\.\d{1,4})?|std(?:out|err)|.*-\d+\.out"
    r"|(?:.*[_.-])?error(?:[_.-].*)?\.json)",
    re.IGNORECASE,
)
_ATTEMPT = re.compile(r"attempt_(\d{1,4})")
_GZIP, _ZSTD, _XZ = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ"


class LogError(PeerwatchError):
    """A log cannot be read; the message says which, why, and what to do."""


def read_logs(names: Sequence[str], stdin: BinaryIO | None = None) -> list[LogText]:
    """Return the logs of one job.

    Parameters
    ----------
    names
        Files, folders, and ``-`` for standard input.
    stdin
        What ``-`` reads; None: that of the process.

    Raises
    ------
    LogError
        If one that was named cannot be read. Files of a folder that cannot are left out.
    """
    found: list[tuple[Path, bool]] = []
    for name in names:
        if name != STDIN:
            found += _found(Path(name))
    streams = names.count(STDIN)
    bound = LARGEST.shared(len(found) + streams, TOTAL_BYTES)
    logs = []
    if streams:
        head, tail, skipped = read_stream(stdin or sys.stdin.buffer, bound)
        logs.append(LogText(STDIN, head, tail, skipped))
    for path, named in found:
        try:
            logs.append(read_log(path, bound))
        except OSError as error:
            if named:
                raise LogError(f"{path}: cannot be read: {error.strerror}") from error
    return logs


def read_log(path: Path, bound: Bound = LARGEST) -> LogText:
    """Return one file as a log.

    Raises
    ------
    LogError
        If it is compressed, or no file.
    OSError
        If it cannot be read.
    """
    # A pipe without a writer would keep it waiting.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise LogError(f"{path}: is no file; standard input is `-`")
        head, tail, skipped = read_ends(file, status.st_size, bound)
    if head.startswith((_GZIP, _ZSTD, _XZ)):
        raise LogError(f"{path}: is compressed; write `zcat {path.name} | peerwatch-responder ...`")
    if not skipped and len(head) <= elastic.MOST_BYTES:
        head = elastic.as_log(head) or head
    name = str(path)
    return LogText(name, head, tail, skipped, rank_in_name(name), identity=f"{status.st_mtime_ns}")


def _found(path: Path) -> Iterator[tuple[Path, bool]]:
    try:
        status = path.stat()
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror}") from error
    if not stat.S_ISDIR(status.st_mode):
        yield path, True
        return
    files = list(_newest_attempts(_files_below(path)))
    if not files:
        raise LogError(
            f"{path}: has no logs; there are taken: *.log, *.out, *.err, *.txt, stdout, stderr and "
            "error.json"
        )
    yield from ((file, False) for file in files)


def _files_below(folder: Path) -> Iterator[Path]:
    count = 0
    for top, below, names in os.walk(folder):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(names):
            if _LOG_NAME.fullmatch(name):
                count += 1
                if count > MOST_FILES:
                    raise LogError(f"{folder}: has more than {MOST_FILES} logs; name some of them")
                yield Path(top, name)


def _newest_attempts(files: Iterable[Path]) -> Iterator[Path]:
    """Yield the files, of torchrun's folders ``attempt_N`` beside one another the newest's only."""
    newest: dict[str, int] = {}
    attempts: list[tuple[Path, str, int]] = []
    for file in files:
        found = _ATTEMPT.search(str(file.parent))
        run, number = (str(file)[: found.start()], int(found[1])) if found else (str(file), 0)
        newest[run] = max(number, newest.get(run, 0))
        attempts.append((file, run, number))
    for file, run, number in attempts:
        if number == newest[run]:
            yield file
