"""Takes off what launchers, container runtimes and loggers put before a line of a program."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from peerwatch_common.signatures.timestamps import timestamp_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# CSI sequences (colours, cursor) and OSC ones (titles, links).
_ESCAPES = re.compile(
    rb"\x1b\[[0-9;:?]{0,64}[ -/]{0,4}[@-~]|\x1b\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)"
)

# A Kubernetes container log (CRI): time, stream, and F for a full line or P for a part of one.
_CRI = re.compile(rb"(\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d)) std(?:out|err) [FP] ")
# What srun --label writes, for the task that writes: its rank if there is one task per GPU.
_SLURM = re.compile(rb" {0,6}(\d{1,6}): ")
# OpenMPI's --tag-output: number of the job, rank.
_OPEN_MPI = re.compile(rb"\[\d{1,6},(\d{1,6})\]<std(?:out|err)>:")
# pdsh, with which DeepSpeed starts several nodes: the host, and then what torch writes.
_PDSH = re.compile(rb"[\w.-]{1,253}: (?=\[rank\d{1,6}\]:)")
# torch's own, of the whole job; it puts a space after it.
_RANK = re.compile(rb"\[rank(\d{1,6})\]: ?")
# torchrun --tee, whose role is "default" unless it is named: the rank on the node, and no space.
_ROLE = re.compile(rb"\[[A-Za-z_]{1,32}(\d{1,6})\]:")
_RAY = re.compile(rb"\([^()\n]{0,80}\bpid=\d{1,10}(?:, ip=[\w.:]{2,45})?\) ")
_SYSLOG = re.compile(rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.:-]{1,253} [^\s:]{1,64}: ")
_ISO = re.compile(
    rb"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d\d:?\d\d))?\]?:?(?: |$)"
)
_DMESG = re.compile(rb"\[ {0,8}\d{1,12}\.\d{6}\] ")
_DMESG_T = re.compile(rb"\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] ")
_KMSG = re.compile(rb"\d{1,4},\d{1,20},\d{1,20},[^;\n]{1,64};")
_TIMED = (_CRI, _SYSLOG, _ISO, _DMESG_T)
_RANKED = ((_RANK, "rank"), (_OPEN_MPI, "rank"), (_ROLE, "local_rank"), (_SLURM, "task"))
_PLAIN = (_RAY, _DMESG, _KMSG, _PDSH)
# Chosen: a runtime, a collector, a launcher and a program each write one or two.
_MOST_PREFIXES = 8
# As many as a traceback may have (tracebacks.py).
_MOST_JSON_LINES = 500
# Where structured loggers put the text of a record, and the traceback that belongs to it.
_JSON_TEXTS = ("log", "message", "msg", "text", "event")
_JSON_TRACES = ("exc_info", "exception", "stack_trace", "traceback")
_JSON_TIMES = ("time", "timestamp", "ts", "@timestamp", "asctime")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a program, without what others put before it.

    Attributes
    ----------
    text
        What the program wrote.
    timestamp
        When (Unix time), as far as the line says.
    rank, local_rank, task
        Who, as far as the line says: by torch or MPI, by torchrun on its node, by Slurm.
    """

    text: bytes
    timestamp: float | None = None
    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None

    @property
    def writer(self) -> tuple[int | None, int | None, int | None]:
        """Who wrote it: lines of several processes may be mixed in one file."""
        return self.rank, self.local_rank, self.task


def without_escapes(text: bytes) -> bytes:
    """Return a text without the sequences that colour a terminal or move its cursor."""
    return _ESCAPES.sub(b"", text) if b"\x1b" in text else text


def lines_in(raw: bytes, now: float) -> Iterator[Line]:
    """Return the program's lines in one line of a log: several if it is a JSON record.

    Parameters
    ----------
    raw
        The line as it stands in the file.
    now
        The time of reading (Unix time), for times without a year.
    """
    line = _unprefixed(Line(raw), now)
    if not line.text.startswith(b"{"):
        yield line
        return
    record = _json_record(line.text)
    if record is None:
        yield line
        return
    texts, written = record
    outer = replace(line, timestamp=line.timestamp or timestamp_of(written, now))
    for text in texts:
        yield _unprefixed(replace(outer, text=without_escapes(text)), now)


def _unprefixed(line: Line, now: float) -> Line:
    for _ in range(_MOST_PREFIXES):
        found = _first_prefix(line, now)
        if found is None:
            break
        line = found
    return line


def _first_prefix(line: Line, now: float) -> Line | None:
    """Return the line without its first prefix, None if it has none."""
    text = line.text
    for form in _TIMED:
        if found := form.match(text):
            # The outer one is of whoever collects the log, and has a zone.
            written = line.timestamp or timestamp_of(found[0], now)
            return replace(line, text=text[found.end() :], timestamp=written)
    for form, name in _RANKED:
        if found := form.match(text):
            return replace(line, text=text[found.end() :], **{name: int(found[1])})
    for form in _PLAIN:
        if found := form.match(text):
            return replace(line, text=text[found.end() :])
    return None


def _json_record(text: bytes) -> tuple[list[bytes], bytes] | None:
    """Return the lines in a record of JSON and its time, None if it is none or holds no text."""
    try:
        record: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    texts = [record.get(key) for key in (*_JSON_TEXTS, *_JSON_TRACES)]
    strings = [value for value in texts if isinstance(value, str)]
    if not strings:
        return None
    written = next((record[key] for key in _JSON_TIMES if isinstance(record.get(key), str)), "")
    lines = [line for value in strings for line in value.splitlines()[:_MOST_JSON_LINES]]
    return [line.encode("utf-8", "replace") for line in lines], written.encode("utf-8", "replace")
