"""Opens a trace, whatever its format; the content decides, not the name."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from peerwatch_detector.diagnosis.stragglers.chain import trace_of
from peerwatch_detector.diagnosis.stragglers.columns import Columns
from peerwatch_detector.diagnosis.stragglers.json_events import read_events
from peerwatch_detector.diagnosis.stragglers.operations import Trace
from peerwatch_detector.diagnosis.stragglers.spans import gather
from peerwatch_detector.diagnosis.stragglers.tables import read_csv, read_parquet
from peerwatch_detector.errors import TraceError

_PARQUET, _GZIP = b"PAR1", b"\x1f\x8b"
# Characters: no line of a trace is as long, as a span has some hundred; a file without line breaks
# is refused before it fills the memory.
_LONGEST_LINE = 1 << 20


def read_trace(
    path: Path, steps: tuple[int, int] | None, advance: Callable[[int], None] = lambda _: None
) -> Trace:
    """Read a trace: a table as CSV or parquet, or spans as Chrome trace or JSON lines.

    Parameters
    ----------
    path
        The file; CSV and JSON may be compressed by gzip.
    steps
        First and last step to read; None: all.
    advance
        Is told how many bytes more were read.

    Raises
    ------
    ConfigError
        If it is parquet and pyarrow is not installed.
    TraceError
        If it cannot be read, or is no trace.
    """
    try:
        with ExitStack() as stack:
            file = stack.enter_context(path.open("rb"))
            begin = file.read(4)
            file.seek(0)
            if not begin:
                raise TraceError(f"{path}: is empty.")
            if begin == _PARQUET:
                columns = Columns(path, steps)
                read_parquet(path, columns, advance)
                return columns.trace()
            packed = begin.startswith(_GZIP)
            content = stack.enter_context(gzip.GzipFile(fileobj=file)) if packed else file
            text = stack.enter_context(
                io.TextIOWrapper(cast("BinaryIO", content), encoding="utf-8-sig", newline="")
            )
            return _read_text(_Counted(text, file, advance), path, steps)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}.") from error
    except (EOFError, zlib.error) as error:
        raise TraceError(f"{path}: is no complete gzip file: {error}.") from error
    except UnicodeDecodeError as error:
        raise TraceError(
            f"{path}: is no text in UTF-8, and no parquet file: {error.reason} at byte "
            f"{error.start:,}. A trace is a table as CSV or parquet, or spans as JSON."
        ) from error


def _read_text(text: _Counted, path: Path, steps: tuple[int, int] | None) -> Trace:
    begin = text.peek().lstrip()
    if not begin:
        raise TraceError(f"{path}: is empty.")
    if begin[0] in "[{":
        return trace_of(gather(read_events(text.read, path), path, steps), path)
    columns = Columns(path, steps)
    read_csv(text.lines(), path, columns)
    return columns.trace()


class _Counted:
    """Reads text and tells how many bytes of the file that took.

    Parameters
    ----------
    text
        The text.
    file
        The file below, which may be compressed.
    advance
        Is told.
    """

    def __init__(self, text: TextIO, file: BinaryIO, advance: Callable[[int], None]) -> None:
        self._text = text
        self._file = file
        self._advance = advance
        self._told = 0
        self._peeked = ""

    def peek(self) -> str:
        """Return the first line that is not blank, or the beginning of a long one."""
        self._peeked = self._text.readline(_LONGEST_LINE)
        while self._peeked.isspace():
            self._peeked = self._text.readline(_LONGEST_LINE)
        return self._peeked

    def read(self, characters: int) -> str:
        """Read on; an empty text at the end."""
        peeked, self._peeked = self._peeked, ""
        self._report_progress()
        return peeked or self._text.read(characters)

    def lines(self) -> Iterator[str]:
        """Yield the lines; a very long one in parts."""
        number = 0
        while line := self._peeked or self._text.readline(_LONGEST_LINE):
            self._peeked = ""
            number += 1
            if number % 4096 == 0:
                self._report_progress()
            yield line
        self._report_progress()

    def _report_progress(self) -> None:
        place = self._file.tell()
        self._advance(place - self._told)
        self._told = place
