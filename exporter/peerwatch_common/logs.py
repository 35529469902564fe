"""The format of the log: one line per event, as key=value pairs or as JSON."""

from __future__ import annotations

import json
import logging
import time


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
        record.level = record.levelname.lower()
        return super().format(record)


class JsonFormatter(LogfmtFormatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object of a record."""
        entry = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)


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
