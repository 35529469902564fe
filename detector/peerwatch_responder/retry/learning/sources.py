"""What a site adds to the corpus: labelled texts, a person's corrections, logs without a label."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerwatch_common.errors import PeerwatchError
from peerwatch_responder.retry.corpus.text import LABELS, Text

if TYPE_CHECKING:
    from collections.abc import Iterable

# Of a long log the beginning, where a cause may stand, and the end. Chosen: much more than the 64
# lines that are learnt from; of so many logs they are 10 GiB.
_PART_BYTES = 256 << 10
_MOST_LOGS = 20_000


class LearnError(PeerwatchError):
    """It cannot be learnt; the message says why and what to do."""


def unlabelled_logs(paths: Iterable[Path]) -> list[list[str]]:
    """Return the lines of each log, of files and of all files below folders, in order of names.

    Empty and binary files are left out.

    Raises
    ------
    LearnError
        If one cannot be read, or there are more than 20,000.
    """
    logs = []
    for path in paths:
        for file in _files(path):
            lines = _lines(file)
            if lines:
                logs.append(lines)
            if len(logs) > _MOST_LOGS:
                raise LearnError(f"{path}: has more than {_MOST_LOGS} logs; give fewer.")
    return logs


def corrections(path: Path) -> list[Text]:
    """Return what persons have corrected, from a history that ``advise --correct`` writes.

    Of several corrections of one kind of failure the last counts. Lines that cannot be read are
    left out, as ``advise`` leaves them out.

    Raises
    ------
    LearnError
        If the file cannot be read.
    """
    try:
        rows = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise LearnError(f"{path}: cannot be read: {error.strerror}.") from error
    found: dict[str, Text] = {}
    for line in rows:
        text = _correction(line)
        if text is not None:
            found[text.id] = text
    return list(found.values())


def _correction(line: str) -> Text | None:
    try:
        row: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or row.get("kind") != "correction":
        return None
    label, text, root = row.get("advice"), row.get("text"), row.get("fingerprint")
    if label not in LABELS or not isinstance(text, str) or not text.strip() or not root:
        return None
    # A kind of failure is a mechanism of its own: it is never split over two folds.
    name = f"corrected/{root}"
    return Text(name, name, "site", "user", label, label == "do_not_retry", text)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = []
    for folder, folders, names in os.walk(path, onerror=_raise):
        folders.sort()
        found += [Path(folder) / name for name in sorted(names)]
    return [each for each in found if each.is_file()]


def _raise(error: OSError) -> None:
    raise LearnError(f"{error.filename}: cannot be read: {error.strerror}.") from error


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            data = file.read(_PART_BYTES)
            size = os.fstat(file.fileno()).st_size
            if size > _PART_BYTES:
                file.seek(max(_PART_BYTES, size - _PART_BYTES))
                data += b"\n" + file.read(_PART_BYTES)
    except OSError as error:
        raise LearnError(f"{path}: cannot be read: {error.strerror}.") from error
    if b"\0" in data[:1024]:
        return []
    lines = data.decode("utf-8", errors="replace").splitlines()
    return lines if any(line.strip() for line in lines) else []
