"""Runs the detector beside its HTTP server until a signal ends it."""

from __future__ import annotations

import logging
import queue
import signal
import threading
from typing import TYPE_CHECKING

from peerwatch_common.web.facts import WebFacts
from peerwatch_common.web.security import SecurityFile
from peerwatch_detector import __version__
from peerwatch_detector.reading.reader import PrometheusReader, instant_reader
from peerwatch_detector.service import prepare
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.service.loop import Loop
from peerwatch_detector.web.server import make_server

if TYPE_CHECKING:
    from peerwatch_detector.config import DetectorConfig
    from peerwatch_detector.models.store import Bundle

logger = logging.getLogger("peerwatch_detector")

_ENDING = frozenset({signal.SIGTERM, signal.SIGINT})
# A read that hangs must not keep the process from ending.
_JOIN_SECONDS = 2.0


def run_detector(config: DetectorConfig, bundle: Bundle) -> None:
    """Evaluate jobs and serve what is found until SIGTERM or SIGINT.

    Raises
    ------
    ConfigError
        With every mistake in the web configuration file.
    ListenError
        If the address cannot be listened on.
    """
    facts = WebFacts()
    security = SecurityFile(config.web.config_file, facts)
    reader = PrometheusReader(config.prometheus)
    instants = instant_reader(config) if config.diagnosis.enabled else None
    detector = Detector(config, reader, bundle, instants=instants)
    server = make_server(detector, security, facts)
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    # SIGINT too, as a shell lets background processes ignore it.
    for number in (*_ENDING, signal.SIGHUP):
        signal.signal(number, lambda number, _: signals.put(number))
    stop = threading.Event()
    prepare.prepare_in_background()
    loop = threading.Thread(target=Loop(detector).run, args=(stop,), name="loop", daemon=True)
    logger.info(
        "started version=%s listen=%s:%d tls=%s prometheus=%s method=%s metrics=%d",
        __version__,
        config.listen.address,
        server.port,
        "on" if security.current().context is not None else "off",
        config.prometheus.shown_url,
        config.method,
        len(detector.metrics),
    )
    server.start()
    loop.start()
    while signals.get() not in _ENDING:
        security.reload()
    logger.info("stopping")
    stop.set()
    server.stop()
    reader.close()
    if instants is not None:
        instants.close()
    loop.join(timeout=_JOIN_SECONDS)
