"""The process that asks DCGM: ``python -m peerwatch_exporter.sources.dcgm PARENT ADDRESS [DIR]``.

It writes a line of JSON a second, ``{"values": {uuid: {field: value}}}``, or one that says what is
wrong, ``{"error": word, "detail": text}``, and ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from typing import TextIO

from peerwatch_exporter.sources.dcgm.session import DcgmSession, DcgmSessionError

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h
_INTERVAL_SECONDS = 1.0  # as often as the exporter reads


def main(arguments: list[str]) -> int:
    """Report until the parent is gone or DCGM is."""
    parent, address, *bindings = arguments
    # Ctrl-C goes to every process of the terminal; the parent ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A call into the library may never return, and must not outlive the exporter.
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        return 0
    # What bindings or library print is no line of ours.
    with os.fdopen(os.dup(1), "w") as channel:
        os.dup2(2, 1)
        try:
            _report(DcgmSession(address, bindings[0] if bindings else None), channel)
        except DcgmSessionError as error:
            _say(channel, {"error": error.error_class, "detail": str(error)})
            return 1
        except BrokenPipeError:
            pass
    return 0


def _report(session: DcgmSession, channel: TextIO) -> None:
    while True:
        _say(channel, {"values": session.values(time.time())})
        time.sleep(_INTERVAL_SECONDS)


def _say(channel: TextIO, message: dict[str, object]) -> None:
    channel.write(json.dumps(message) + "\n")
    channel.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
