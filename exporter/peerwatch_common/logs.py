"""The format of the log: one line per event, as key=value pairs or as JSON.

What comes from elsewhere (names of jobs and nodes, what a server answered, errors' texts) cannot
begin a line, add a pair to one, move a terminal's cursor or fill a disk: it is made harmless here,
for every program and every logger.
"""

from __future__ import annotations

import copy
import json
import logging
import re
import time
from pathlib import PurePath

from peerwatch_common.metrics.label_length import shortened

# Characters that begin a line, or that a terminal obeys: C0, DEL, C1, Unicode's line separators and
# those that turn the direction of writing; and halves of characters, which cannot be written.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
# A value that stands behind = and must not be taken for several pairs.
_QUOTED = re.compile(r'[\s"=]')
_CONVERSION = re.compile(r"%(?:%|[-#0 +]*\d*(?:\.\d+)?[a-zA-Z])")
# Chosen: the program's own sentences are shorter, and what a proxy sends as HTML is cut.
_MAX_MESSAGE_CHARACTERS = 8192


def one_line(text: str) -> str:
    """Return a text without characters that begin a line or that a terminal obeys."""
    return _UNPRINTABLE.sub(lambda found: _NAMED.get(found[0]) or _escape(found[0]), text)


def printable(text: str) -> str:
    """Return a name as it is if a terminal shows all of it, and else in escapes."""
    return text if text.isprintable() else ascii(text)[1:-1]


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


class _Value(str):
    """A value that ``%s`` writes as one value of logfmt, and ``%r`` as it is."""

    __slots__ = ()

    def __str__(self) -> str:
        plain = str.__str__(self)
        if not _QUOTED.search(plain):
            return plain
        escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'


class LogfmtFormatter(logging.Formatter):
    """``time=... level=... logger=... event key=value``: events are written as pairs already."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("time=%(asctime)s level=%(level)s logger=%(name)s %(message)s")

    @staticmethod
    def converter(seconds: float | None) -> time.struct_time:
        """Return the time in UTC: logs of many nodes are read side by side."""
        return time.gmtime(seconds)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record; with its traceback below, if it has one."""
        record = _with_values(record)
        record.level = record.levelname.lower()
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line without the traceback."""
        return one_line(super().formatMessage(record))

    def formatException(self, ei: logging._SysExcInfoType) -> str:  # noqa: N802 - logging's name
        """Return a traceback, indented: no line of it looks like a line of the log."""
        lines = super().formatException(ei).split("\n")
        return "\n".join(f"  {one_line(line)[:_MAX_MESSAGE_CHARACTERS]}" for line in lines)


class JsonFormatter(LogfmtFormatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object of a record."""
        entry = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(_with_values(record).getMessage()),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def _with_values(record: logging.LogRecord) -> logging.LogRecord:
    """Return a copy of a record of which each argument is one value, and not a long one."""
    made = copy.copy(record)
    if isinstance(record.args, tuple) and record.args:
        text = str(record.msg)
        places = [found for found in _CONVERSION.finditer(text) if found[0] != "%%"]
        if len(places) == len(record.args):
            made.args = tuple(
                _value(text[: place.start()], argument)
                for place, argument in zip(places, record.args, strict=True)
            )
    made.msg, made.args = _cut(made.getMessage()), None
    return made


def _value(before: str, argument: object) -> object:
    """Return an argument as it may stand in a line; numbers stay what they are."""
    if isinstance(argument, (int, float)) or argument is None:
        return argument
    if not isinstance(argument, str):
        # Errors and paths; lists are written with %r, which quotes their items.
        if not isinstance(argument, (BaseException, PurePath)):
            return argument
        argument = str(argument)
    short = shortened(argument)
    return _Value(short) if before.endswith("=") else short


def _cut(message: str) -> str:
    if len(message) <= _MAX_MESSAGE_CHARACTERS:
        return message
    return f"{message[:_MAX_MESSAGE_CHARACTERS]}...[{len(message)} characters]"


def set_up_logging(level: str, form: str) -> None:
    """Log to standard error.

    Parameters
    ----------
    level
        ``debug``, ``info``, ``warning`` or ``error``.
    form
        ``logfmt`` or ``json``.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else LogfmtFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def log_form() -> str:
    """Return the form in use, ``logfmt`` or ``json``, for processes that log beside this one."""
    handlers = logging.getLogger().handlers
    return (
        "json"
        if any(isinstance(handler.formatter, JsonFormatter) for handler in handlers)
        else "logfmt"
    )
