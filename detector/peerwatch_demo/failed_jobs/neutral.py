"""Takes out of a log what is of the machine it was written on: its name, folders, addresses."""

from __future__ import annotations

import os
import re
import socket
import sys
from pathlib import Path

_USER = "/home/user"
_ADDRESS = re.compile(r"\b(?!127\.0\.0\.1\b|0\.0\.0\.0\b|203\.0\.113\.)\d{1,3}(?:\.\d{1,3}){3}\b")
# Chosen: a reader sees how the job began and all of a traceback, and the file stays short.
_MOST_LINES = 80


def neutral(text: str, folder: str) -> str:
    """Return a log as another machine would have written it.

    Parameters
    ----------
    text
        As the job wrote it.
    folder
        Where it ran.
    """
    names = {
        folder: "/job",
        str(Path(folder).resolve()): "/job",
        sys.prefix: "/opt/venv",
        str(Path(sys.executable).parent.parent): "/opt/venv",
        sys.base_prefix: "/usr",
        str(Path.cwd()): _USER,
        os.environ.get("HOME") or _USER: _USER,
    }
    # The longest first: one folder may hold another.
    for name in sorted(names, key=len, reverse=True):
        if len(name) > len("/usr"):
            text = text.replace(name, names[name])
    for host in {socket.getfqdn(), socket.gethostname()} - {"localhost"}:
        text = re.sub(rf"\b{re.escape(host)}\b", "node-1", text)
    text = _ADDRESS.sub("10.0.0.1", text)
    return shortened(text.rstrip("\n"))


def shortened(text: str) -> str:
    """Return the beginning and the end of a long log, and between them how much is gone."""
    lines = [line.rstrip() for line in text.splitlines()]
    if len(lines) <= _MOST_LINES:
        return "\n".join(lines)
    first, last = _MOST_LINES // 4, _MOST_LINES - _MOST_LINES // 4
    gone = f"[{len(lines) - first - last} lines]"
    return "\n".join([*lines[:first], gone, *lines[-last:]])
