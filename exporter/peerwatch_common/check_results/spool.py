"""The spool folder: a file ``<check>.jsonl`` for each check, replaced whole by each of its runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

from peerwatch_common.check_results.record import RecordError, parse_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_common.check_results.record import Record

DEFAULT_FOLDER = Path("/var/lib/peerwatch/checks")
SUFFIX = ".jsonl"
# Chosen: twenty times the checks that there are, and a kilobyte for each of MAX_RECORDS.
MAX_FILES = 500
MAX_FILE_BYTES = 1024**2
# Devices of one check: a node with 16 GPUs has 240 pairs of them; four times that.
MAX_RECORDS = 1000


@dataclass(frozen=True, slots=True)
class SpoolContent:
    """What a spool folder holds.

    Parameters
    ----------
    records
        The records, one for each check, scope and device.
    problems
        A sentence for each file that is not, or not wholly, what it should be.
    """

    records: tuple[Record, ...]
    problems: tuple[str, ...]


def read_spool(folder: Path) -> SpoolContent:
    """Return what a folder holds; a bad file costs its own records only.

    Raises
    ------
    OSError
        If the folder cannot be read.
    """
    names = sorted(path.name for path in folder.iterdir() if path.suffix == SUFFIX)
    records: dict[tuple[str, str, str], Record] = {}
    problems = []
    if len(names) > MAX_FILES:
        problems.append(f"{folder} holds {len(names)} files; {MAX_FILES} are read.")
    for name in names[:MAX_FILES]:
        content = read_records(folder / name)
        problems += content.problems
        for record in content.records:
            # The newest one, if two files speak of the same.
            known = records.get(record.key)
            if known is None or known.started <= record.started:
                records[record.key] = record
    return SpoolContent(tuple(records.values()), tuple(problems))


def read_records(path: Path) -> SpoolContent:
    """Return the records of one file, and what is wrong with it; it may be of anybody."""
    try:
        text = _text(path)
    except FileNotFoundError:
        # Replaced or removed just now.
        return SpoolContent((), ())
    except (OSError, ValueError) as error:
        return SpoolContent((), (f"{path}: {error}",))
    records: list[Record] = []
    problems: list[str] = []
    for number, line in _lines(text):
        if len(records) == MAX_RECORDS:
            problems.append(f"{path}: has more than {MAX_RECORDS} records.")
            break
        try:
            records.append(parse_record(line))
        except RecordError as error:
            problems.append(f"{path}, line {number}: {error}")
            # The first says enough of a file.
            break
    return SpoolContent(tuple(records), tuple(problems))


def _text(path: Path) -> str:
    # A pipe or a link in a folder that others may write must neither block nor lead elsewhere.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        if not S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("is no regular file.")
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"is longer than {MAX_FILE_BYTES} bytes.")
    return content.decode()


def _lines(text: str) -> Iterator[tuple[int, str]]:
    # Not splitlines: a message may hold other characters that Python takes for the end of a line.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line
