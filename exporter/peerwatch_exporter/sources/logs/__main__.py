"""The process that reads logs: ``python -m peerwatch_exporter.sources.logs CHANNEL MEMORY``."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys

from peerwatch_exporter.sources.logs.serve import serve

# The training job comes first: under CFS a third of its weight.
_NICE = 5


def main() -> int:
    """Serve the parent over two inherited descriptors."""
    # Ctrl-C goes to every process of the terminal; the parent ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        return serve(channel, int(sys.argv[2]))


if __name__ == "__main__":
    sys.exit(main())
