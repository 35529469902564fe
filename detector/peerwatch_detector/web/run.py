"""Runs the detector beside its HTTP server until a signal ends it."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from peerwatch_common.settings.reload import Reload
from peerwatch_common.signals import ENDING, Signals
from peerwatch_common.web.facts import WebFacts
from peerwatch_common.web.security import SecurityFile
from peerwatch_detector import __version__
from peerwatch_detector.reading.reader import (
    PrometheusReader,
    config_reader,
    history_reader,
    instant_reader,
    root_reader,
)
from peerwatch_detector.service import prepare
from peerwatch_detector.service.configurations import JobConfigurations
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.service.loop import Loop
from peerwatch_detector.service.roots import JobRoots
from peerwatch_detector.web.server import make_server

if TYPE_CHECKING:
    from peerwatch_detector.config import DetectorConfig
    from peerwatch_detector.models.store import Bundle

logger = logging.getLogger("peerwatch_detector")

# A read that hangs must not keep the process from ending: Docker kills it after 10 s.
_JOIN_SECONDS = 2.0

# Settings that only a restart changes: what the server, the reader and the threads were made of.
FIXED = (
    *("listen", "web", "prometheus", "replicas", "scheduling", "diagnosis"),
    "cycle_seconds",
)


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """Where the settings stand, for SIGHUP.

    Parameters
    ----------
    path
        The file; None if all settings are defaults or flags.
    load
        Reads it, with the flags.
    bundle
        Loads the models that settings name.
    """

    path: Path | None
    load: Callable[[], DetectorConfig]
    bundle: Callable[[DetectorConfig], Bundle]


def run_detector(config: DetectorConfig, bundle: Bundle, settings: SettingsFile) -> None:
    """Evaluate jobs and serve what is found until SIGTERM or SIGINT.

    Parameters
    ----------
    config, bundle
        The settings, and the models that they name.
    settings
        Where they are read again.

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
    config_instants = config_reader(config) if config.diagnosis.enabled else None
    root_instants = root_reader(config) if config.diagnosis.enabled else None
    history = history_reader(config)
    detector = Detector(
        config,
        reader,
        bundle,
        instants=instants,
        configurations=JobConfigurations(config_instants, time.time) if config_instants else None,
        roots=JobRoots(root_instants, time.time) if root_instants else None,
    )
    server = make_server(detector, security, facts, history)
    signals = Signals(*ENDING, signal.SIGHUP)
    stop = threading.Event()
    prepare.compile_in_background()
    evaluating = Loop(detector, prepare=prepare.prepare_in_background)
    loop = threading.Thread(target=evaluating.run, args=(stop,), name="loop", daemon=True)
    reload = _reload(config, settings, evaluating)
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
    while (came := signals.next()) not in ENDING:
        if came is not None:
            security.reload()
            reload.request()
    logger.info("stopping")
    stop.set()
    server.stop()
    reader.close()
    for each in (instants, config_instants, root_instants, history):
        if each is not None:
            each.close()
    loop.join(timeout=_JOIN_SECONDS)


def _reload(config: DetectorConfig, settings: SettingsFile, loop: Loop) -> Reload[DetectorConfig]:
    def follow(wanted: DetectorConfig, changed: Sequence[str]) -> Sequence[str]:  # noqa: ARG001
        # Models are read here, so that a file that cannot be is a mistake like any other.
        loop.follow(wanted, settings.bundle(wanted))
        return ()

    return Reload(
        settings.path,
        config,
        load=settings.load,
        apply=follow,
        fixed=FIXED,
        facts=loop.detector.reloads,
    )
