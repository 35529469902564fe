"""Serves beside a program's own work until a signal ends it; SIGHUP reads certificates anew."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

from peerwatch_common.signals import ENDING, Signals

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from peerwatch_common.web.security import SecurityFile
    from peerwatch_common.web.server import HttpServer

# What hangs must not keep the process from ending. Chosen: well within the 30 s that the chart
# gives these programs to end.
JOIN_SECONDS = 5.0


def serve_until_signal(
    server: HttpServer,
    security: SecurityFile,
    work: Callable[[], None],
    stop: Callable[[], None],
    log: logging.Logger,
) -> None:
    """Run a server and a thread of work until SIGTERM or SIGINT; call it from the main thread.

    Parameters
    ----------
    server
        It is started, and stopped first.
    security
        Read anew at SIGHUP.
    work
        Runs in a thread until ``stop`` is called.
    stop
        Lets ``work`` return.
    log
        Of the program.
    """
    signals = Signals(*ENDING, signal.SIGHUP)
    working = threading.Thread(target=work, name="work", daemon=True)
    server.start()
    working.start()
    while (came := signals.next()) not in ENDING:
        if came is not None:
            security.reload()
    log.info("stopping")
    server.stop()
    stop()
    working.join(JOIN_SECONDS)
