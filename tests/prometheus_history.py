"""A real Prometheus that has a history, as the reliability program asks it."""

from __future__ import annotations

from contextlib import contextmanager

from detector.backfilled import backfilled
from peerwatch_reliability.settings.config import PrometheusConfig
from peerwatch_reliability.sources.prometheus.server import Server


@contextmanager
def prometheus_with(folder, lines):
    """Yield a ``Server`` that has the samples of these lines."""
    with backfilled(folder, "\n".join(lines) + "\n") as url:
        yield Server(PrometheusConfig(url=url, timeout_seconds=300))
