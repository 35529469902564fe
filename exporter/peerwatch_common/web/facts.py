"""What the web server counts: the program publishes it."""

from __future__ import annotations

import logging
import threading

from peerwatch_common.metrics.label_length import MAX_LABEL_BYTES

_LOG = logging.getLogger(__name__)


class WebFacts:
    """Counters and states of the web server, written by its threads.

    Attributes
    ----------
    reload_failed
        Whether the web configuration file as it stands cannot be used.
    rejected_connections, failed_logins, shortened_labels
        Since the start.
    """

    def __init__(self) -> None:
        self.reload_failed = False
        self.rejected_connections = 0
        self.failed_logins = 0
        self.shortened_labels = 0
        self._reported: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def count_rejected_connection(self) -> None:
        """Note a connection beyond the limit."""
        with self._lock:
            self.rejected_connections += 1

    def count_failed_login(self) -> None:
        """Note a request with a wrong user or password, or with none."""
        with self._lock:
            self.failed_logins += 1

    def count_shortened_label(self, metric: str, label: str) -> None:
        """Note a label value that was too long; the log has each label of a metric once."""
        with self._lock:
            self.shortened_labels += 1
            is_new = (metric, label) not in self._reported
            self._reported.add((metric, label))
        if is_new:
            _LOG.warning(
                "label shortened metric=%s label=%s limit_bytes=%d", metric, label, MAX_LABEL_BYTES
            )
