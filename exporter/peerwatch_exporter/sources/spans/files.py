"""The files of spans in a directory: one per rank, beside the heartbeats."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from peerwatch_exporter.sources.spans.ring import SpanHeader, read_header

if TYPE_CHECKING:
    from pathlib import Path

_FILE_NAME = re.compile(r"rank-(0|[1-9]\d{0,6})\.spans")
# Ranks of one node; more were not meant: 64 for each of 16 GPUs.
_MOST_FILES = 1024


class SpanFiles(NamedTuple):
    """The heads that could be read with their files, and one line for each that could not."""

    ranks: tuple[tuple[Path, SpanHeader], ...]
    problems: tuple[str, ...]


def read_span_files(directory: Path) -> SpanFiles:
    """Return what stands at the heads of a directory's files; none if it is not there.

    Raises
    ------
    OSError
        If the directory cannot be read.
    """
    ranks = []
    problems = []
    for rank, name in _files(directory):
        path = directory / name
        try:
            ranks.append((path, read_header(path, rank)))
        except FileNotFoundError:  # removed by a rank that ended meanwhile
            continue
        except (OSError, ValueError) as error:
            problems.append(f"{path}: {error}")
    return SpanFiles(tuple(ranks), tuple(problems))


def _files(directory: Path) -> list[tuple[int, str]]:
    try:
        names = os.listdir(directory)  # noqa: PTH208 - every second
    except (FileNotFoundError, NotADirectoryError):
        return []
    matches = (_FILE_NAME.fullmatch(name) for name in names)
    found = sorted((int(match[1]), match[0]) for match in matches if match)
    return found[:_MOST_FILES]
