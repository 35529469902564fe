"""What the web server tells the collector ``web`` about itself."""

from __future__ import annotations

import threading


class WebFacts:
    """Counters and states of the web server, written by its threads.

    Attributes
    ----------
    reload_failed
        Whether the web configuration file as it stands cannot be used.
    rejected_connections, failed_logins
        Since the start.
    """

    def __init__(self) -> None:
        self.reload_failed = False
        self.rejected_connections = 0
        self.failed_logins = 0
        self._lock = threading.Lock()

    def count_rejected_connection(self) -> None:
        """Note a connection beyond the limit."""
        with self._lock:
            self.rejected_connections += 1

    def count_failed_login(self) -> None:
        """Note a request with a wrong user or password, or with none."""
        with self._lock:
            self.failed_logins += 1
