"""Assembles the exporter and keeps it running: sources, driver, clock, endpoints, server."""

from __future__ import annotations

import logging
import os
import signal
import threading
from typing import TYPE_CHECKING, TypedDict

from peerwatch_common.settings.differences import with_settings_of
from peerwatch_common.signals import ENDING, LONGEST_WAIT_SECONDS, Signals
from peerwatch_common.web.compression import GzipCache
from peerwatch_common.web.health import WithHealth
from peerwatch_common.web.security import SecurityFile
from peerwatch_common.web.server import HttpServer
from peerwatch_exporter import __version__
from peerwatch_exporter.pages.endpoints import Endpoints
from peerwatch_exporter.process.notify import Notifier
from peerwatch_exporter.schedule.runner import Runner
from peerwatch_exporter.schedule.worker_set import WorkerSet
from peerwatch_exporter.web.app import App
from peerwatch_exporter.web.landing import Landing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from peerwatch_common.settings.reload import Reload
    from peerwatch_common.web.response import Response
    from peerwatch_exporter.process.assembly import Parts
    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

_LOG = logging.getLogger(__name__)

PROGRAM = "peerwatch-exporter"

# How long the GPU driver is let go of, so that it can be unloaded and loaded again: chosen, an
# exchange of drivers takes a minute or two.
RELEASE_SECONDS = 300.0
# Below the 2 s that ``--help`` promises. Systemd waits longer; Kubernetes and a person at a
# terminal should not have to.
_END_SECONDS = 1.8
# Until the first snapshot is there: whoever waits for the unit waits no longer.
_FIRST_CHECK_SECONDS = 0.1

# Settings that only a restart changes: what the sockets, the sources and the sampler were made of.
FIXED = (
    *("listen", "web", "scope", "paths", "sampler", "spans"),
    *("fast.fine_step_milliseconds", "heartbeat.directory"),
)


class Exporter:
    """One exporter with all of its parts.

    Parameters
    ----------
    parts
        What it is made of.

    Raises
    ------
    ConfigError
        If the web configuration has mistakes.
    ListenError
        If the address cannot be listened on.
    """

    def __init__(self, parts: Parts) -> None:
        config, sources = parts.config, parts.sources
        self._config = config
        self.security = SecurityFile(config.web.config_file, sources.web)
        self.driver = parts.driver
        self._sampler = parts.sampler
        self._workers = WorkerSet(config, sources, parts.registered, parts.driver)
        self.runner = Runner(
            self._workers.workers, sources, version=__version__, **_runner_settings(config)
        )
        landing = Landing(
            version=__version__,
            node=os.uname().nodename,
            started=sources.clock(),
            clock=sources.clock,
            status=self.runner.status,
            boards=sources.gpus.boards,
            places={name: item.process for name, item in parts.registered.items()},
            port=lambda: self.server.port,
            notes=parts.notes,
        )
        endpoints = Endpoints(
            self.runner,
            more_samples=parts.fine,
            on_shortened=sources.web.count_shortened_label,
        )
        spans, stack = _spans(config, sources), _stack(config, sources, self.security)
        app = App(endpoints, landing.render, parts.burst, spans, stack)
        self.server = HttpServer(
            PROGRAM,
            config.listen.address,
            config.listen.port,
            WithHealth(PROGRAM, endpoints.readiness, app),
            security=self.security.current,
            max_connections=config.web.max_connections,
            facts=sources.web,
            gzip=GzipCache(),
        )

    def start(self) -> None:
        """Start every part; endpoints are answered from now on."""
        for part in (self.driver, self._sampler, self.runner, self.server):
            if part is not None:
                part.start()

    def follow(self, config: ExporterConfig, changed: Sequence[str]) -> list[str]:
        """Go on with other settings; return what of them needs a restart all the same.

        Parameters
        ----------
        config
            All of them; those in ``FIXED`` stay as they are.
        changed
            Paths of those that differ.
        """
        # The host that is read may have settings of its own there.
        self._config = with_settings_of(config, self._config, FIXED)
        late = self._workers.follow(self._config, changed)
        self.runner.follow(self._workers.workers, **_runner_settings(self._config))
        return [f"collectors.enabled ({name})" for name in late]

    def stop(self) -> None:
        """Stop every part, the server first."""
        for part in (self.server, self.runner, self._sampler, self.driver):
            if part is not None:
                part.stop()


class _RunnerSettings(TypedDict):
    deadline_seconds: float
    max_series: int
    history_seconds: float
    mean_seconds: float


def _runner_settings(config: ExporterConfig) -> _RunnerSettings:
    """Return what the runner has of the settings."""
    return {
        "deadline_seconds": config.deadline_seconds,
        "max_series": config.collectors.max_series,
        "history_seconds": config.fast.history_seconds,
        "mean_seconds": config.mean_seconds,
    }


def _spans(config: ExporterConfig, sources: Sources) -> Callable[[str], Response] | None:
    directory = config.heartbeat.directory
    if directory is None:
        return None
    from peerwatch_exporter.web.spans import SpanAnswers  # noqa: PLC0415 - few need it

    most = config.spans.max_spans
    return SpanAnswers(directory, sources.known_ranks, most, sources.clock).answer


def _stack(
    config: ExporterConfig, sources: Sources, security: SecurityFile
) -> Callable[[str], Response] | None:
    directory = config.heartbeat.directory
    if directory is None or not config.heartbeat.stacks:
        return None
    from peerwatch_exporter.web.stack import StackAnswers  # noqa: PLC0415 - few need it

    def protected() -> bool:
        return security.current().logins is not None

    return StackAnswers(directory, sources.known_ranks, protected).answer


def run_until_ended(
    make: Callable[[], Exporter],
    environment: Mapping[str, str] | None = None,
    reload_of: Callable[[Exporter], Reload[ExporterConfig]] | None = None,
) -> None:
    """Make an exporter, start it and serve until SIGTERM or SIGINT.

    Parameters
    ----------
    make
        Makes it; signals that come meanwhile are kept.
    environment
        Where systemd's variables stand; by default the process' own.
    reload_of
        Returns what reads its settings again at SIGHUP; by default nothing does.
    """
    signals = Signals(*ENDING, signal.SIGHUP, signal.SIGUSR1)
    exporter = make()
    reload = None if reload_of is None else reload_of(exporter)
    exporter.start()
    _LOG.info(
        "serving port=%d tls=%s collectors=%s",
        exporter.server.port,
        "on" if exporter.security.current().context is not None else "off",
        ",".join(exporter.runner.names),
    )
    notifier = Notifier(os.environ if environment is None else environment)
    _follow(exporter, signals, notifier, reload)
    notifier.stopping()
    # A thread that hangs in the kernel must not keep the exporter from ending in time; what it
    # started ends with it.
    last_resort = threading.Timer(_END_SECONDS, os._exit, [0])
    last_resort.daemon = True
    last_resort.start()
    exporter.stop()
    _LOG.info("stopped")
    last_resort.cancel()


def _follow(
    exporter: Exporter,
    signals: Signals,
    notifier: Notifier,
    reload: Reload[ExporterConfig] | None,
) -> None:
    """Handle signals and notify systemd; return when asked to end."""
    every = notifier.watchdog_seconds
    # systemd itself advises half of the limit; a quarter leaves room for a busy node.
    pause = LONGEST_WAIT_SECONDS if every is None else min(every / 4, LONGEST_WAIT_SECONDS)
    reported = 0
    while True:
        number = signals.next(pause if reported else _FIRST_CHECK_SECONDS)
        if number is None:
            reported = _report(exporter, notifier, reported)
        elif number in ENDING:
            return
        else:
            _handle(exporter, number, reload)


def _report(exporter: Exporter, notifier: Notifier, reported: int) -> int:
    """Notify systemd if there are new snapshots; return the newest one's number."""
    snapshot = exporter.runner.snapshot(0)
    number = 0 if snapshot is None else snapshot.number
    if number and not reported:
        notifier.ready()
    if number > reported:
        notifier.alive()
    return number


def _handle(
    exporter: Exporter, number: signal.Signals, reload: Reload[ExporterConfig] | None
) -> None:
    if number == signal.SIGHUP:
        exporter.security.reload()
        if reload is not None:
            reload.request()
    elif exporter.driver is None:
        _LOG.warning("no driver to release, no collector needs it")
    else:
        exporter.driver.release(RELEASE_SECONDS)
