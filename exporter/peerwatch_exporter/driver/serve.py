"""The driver process itself: runs the collectors that call NVML, as its parent asks for them.

It has one thread. It ends when its parent closes the channel or dies, when there is no driver,
and when the driver was reloaded: a fresh process is the only clean start that NVML has.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import select
import signal
import socket
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from peerwatch_common.logs import set_up_logging
from peerwatch_common.memory import search_rarely
from peerwatch_common.settings.differences import differences
from peerwatch_exporter.collector import registered
from peerwatch_exporter.driver.progress_marker import (
    FACTS,
    FIRST_COLLECTOR,
    IDLE,
    LIBRARY,
    ProgressMarker,
    open_progress_marker,
)
from peerwatch_exporter.driver.wire import FamilyPacker, Inbox, pack
from peerwatch_exporter.errors import NoData, PartialData, error_class
from peerwatch_exporter.settings.plain import from_plain
from peerwatch_exporter.settings.used import UsedSettings, changed_collector
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.gpu.nvml import Nvml
from peerwatch_exporter.sources.gpu.nvml_access import (
    DriverAbsent,
    DriverReloadedError,
    NvmlError,
    share_nvml,
)
from peerwatch_exporter.sources.gpu.nvml_facts import FactsReader
from peerwatch_exporter.sources.host.access import Paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from peerwatch_common.metrics.spec import Family
    from peerwatch_exporter.collector import Collector, Factory
    from peerwatch_exporter.settings.config import ExporterConfig

_LOG = logging.getLogger(__name__)
# As in ``child``: settings are shorter than a second's answers.
_READ_BYTES = 1 << 16
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h
_REQUIRED = ("--channel", "--marker", "--parent")
# Longer texts are no explanations.
_DETAIL_CHARACTERS = 500


class _ParentGoneError(Exception):
    """The other end of the channel was closed."""


def options_of(arguments: Sequence[str]) -> dict[str, str]:
    """Return the ``--name value`` pairs of a command line; argparse would cost a MiB.

    Raises
    ------
    SystemExit
        If the command line is something else, or lacks what every driver process is given.
    """
    names, found = arguments[::2], arguments[1::2]
    options = dict(zip(names, found, strict=False))
    if len(names) != len(found) or not set(_REQUIRED) <= options.keys():
        raise SystemExit("The driver process is started by peerwatch-exporter, not by hand.")
    return {name.removeprefix("--"): value for name, value in options.items()}


def serve(options: Mapping[str, str]) -> int:
    """Answer the parent until it goes; return the exit status.

    Parameters
    ----------
    options
        ``channel`` and ``marker``, two inherited descriptors, and ``parent``, a process id.
    """
    # A terminal's Ctrl-C reaches every process; the parent ends this one in its own time.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with(int(options["parent"]))
    channel = socket.socket(fileno=int(options["channel"]))
    try:
        return _Server(channel, open_progress_marker(int(options["marker"]))).run()
    except (_ParentGoneError, BrokenPipeError, ConnectionResetError):
        return 0


def _die_with(parent: int) -> None:
    """Let the kernel end this process when the parent's thread that started it ends."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        # It died before the kernel was told.
        sys.exit(0)


class _Server:
    """One driver process from its settings to its end."""

    def __init__(self, channel: socket.socket, marker: ProgressMarker) -> None:
        self._channel = channel
        self._marker = marker
        self._inbox = Inbox()
        self._unread: list[tuple[Any, ...]] = []
        # Unlike select, for any descriptor: it has the number that was free in the parent.
        self._readable = select.poll()
        self._readable.register(channel, select.POLLIN)
        self._packer = FamilyPacker()
        self._factories: dict[str, Factory] = {}
        self._collectors: dict[str, Collector] = {}
        self._used: dict[str, UsedSettings] = {}
        self._facts_failed = False
        self._facts_sent: object = None

    def run(self) -> int:
        """Take the settings, then requests until the parent goes."""
        (_, settings) = self._receive()
        self._set_up(settings)
        try:
            self._marker.enter(LIBRARY)
            self._nvml.gpus()
        except DriverAbsent as absent:
            self._send("absent", absent.error_class, str(absent))
            return 0
        except NvmlError as error:
            self._send("failed", error_class(error), str(error))
            return 1
        self._marker.enter(IDLE)
        search_rarely()
        self._send("ready")
        try:
            while True:
                self._marker.enter(IDLE)
                self._handle(*self._receive())
        except DriverReloadedError as error:
            self._send("reloaded", str(error))
            return 0

    def _set_up(self, settings: dict[str, Any]) -> None:
        set_up_logging(settings["log_level"], settings["log_format"])
        self._config = from_plain(settings["config"])
        paths = self._config.paths
        self._nvml = Nvml(self._marker, only=settings["only"], excluded=settings["excluded"])
        self._sources = Sources(Paths(procfs=paths.procfs, sysfs=paths.sysfs, kmsg=paths.kmsg))
        share_nvml(self._sources, self._nvml)
        self._facts = FactsReader(self._nvml, self._sources, self._sources.gpus)
        for name, module in settings["collectors"]:
            importlib.import_module(module)
            self._factories[name] = registered(name).factory
        self._phases = {name: FIRST_COLLECTOR + n for n, name in enumerate(self._factories)}

    def _handle(self, kind: str, *arguments: Any) -> None:  # noqa: ANN401
        if kind == "select":
            self._nvml.exclude(frozenset(arguments[0]))
            return
        if kind == "settings":
            self._follow(from_plain(arguments[0]))
            return
        name = arguments[0]
        self._marker.enter(self._phases[name])
        self._answer(name)
        if not self._is_asked():
            self._marker.enter(FACTS)
            self._send_facts()

    def _send_facts(self) -> None:
        try:
            facts = self._facts.read()
        except DriverReloadedError:
            raise
        except Exception as failure:
            # The process must outlive it: who ends in a call is taken for the fault of a GPU.
            if not self._facts_failed:
                _LOG.exception("GPU facts cannot be read error=%r", failure)
            self._facts_failed = True
            return
        finally:
            self._marker.enter(IDLE)
        self._facts_failed = False
        # Boards and processes stay for long; events and samples are given once.
        standing, news = facts[:2], facts[2:]
        if any(news) or standing != self._facts_sent:
            self._send("facts", facts)
            self._facts_sent = standing

    def _answer(self, name: str) -> None:
        began = time.monotonic()
        families: list[Family] = []
        success, error, detail = True, None, ""
        try:
            # One by one: what was yielded before PartialData stays.
            for family in self._collect(name):
                families.append(family)  # noqa: PERF402 - extend would lose them on an exception
        except NoData as absent:
            families, detail = [], str(absent)
        except PartialData as partial:
            error = partial.error_class or error_class(partial.__cause__ or partial)
            detail = str(partial)
        except DriverReloadedError:
            raise
        except Exception as failure:
            families, success = [], False
            error, detail = error_class(failure), str(failure)
        # What follows concerns no GPU any more.
        self._marker.enter(IDLE)
        packed = self._packer.pack(name, families)
        took = time.monotonic() - began
        detail = detail[:_DETAIL_CHARACTERS]
        self._send("answer", name, success, error, detail, began, took, packed)

    def _collect(self, name: str) -> Iterator[Family]:
        if name not in self._collectors:
            self._collectors[name] = self._made(name)
        yield from self._collectors[name].collect()

    def _made(self, name: str) -> Collector:
        used = self._used[name] = UsedSettings(self._config)
        return self._factories[name](cast("ExporterConfig", used), self._sources)

    def _follow(self, config: ExporterConfig) -> None:
        """Follow other settings; only the collectors made of what differs are concerned."""
        changed = {path.split(".")[0] for path in differences(self._config, config)}
        self._config = config
        for name, collector in self._collectors.items():
            if changed.isdisjoint(self._used[name].sections):
                continue
            self._collectors[name] = changed_collector(
                collector, UsedSettings(config), partial(self._made, name)
            )

    def _send(self, *message: object) -> None:
        self._channel.sendall(pack(message))

    def _receive(self) -> tuple[Any, ...]:
        while not self._unread:
            data = self._channel.recv(_READ_BYTES)
            if not data:
                raise _ParentGoneError
            self._unread += self._inbox.feed(data)
        return self._unread.pop(0)

    def _is_asked(self) -> bool:
        """Return whether a request waits already."""
        return bool(self._unread) or bool(self._readable.poll(0))
