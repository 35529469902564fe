"""Reads the settings again while a program runs: what is broken changes nothing.

A program that gets SIGHUP calls ``Reload.request``. A thread reads the file, for it may lie on a
disk that hangs; requests that come meanwhile are one more reading.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from peerwatch_common.errors import ConfigError
from peerwatch_common.settings.differences import differences, is_under, with_settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

_LOG = logging.getLogger(__name__)

Settings = TypeVar("Settings")


class ReloadFacts:
    """How the settings were read last, which the program publishes.

    Attributes
    ----------
    successful
        Whether the last reading was taken over; the one at the start was.
    success_time
        When that last was so (Unix time); None before the program has started.
    readings
        How often the settings were read again, by ``success`` and ``failure``.
    """

    def __init__(self) -> None:
        self.successful = True
        self.success_time: float | None = None
        self.readings = {"success": 0, "failure": 0}

    def started(self, now: float) -> None:
        """Note that the program runs with its settings (Unix time)."""
        self.success_time = now

    def read(self, now: float, *, successful: bool) -> None:
        """Note that the settings were read again (Unix time)."""
        self.readings["success" if successful else "failure"] += 1
        self.successful = successful
        if successful:
            self.success_time = now


class Reload(Generic[Settings]):
    """The settings in force, and how they are read again.

    Parameters
    ----------
    file
        Where they stand; None if all are of the command line, which does not change.
    current
        Those in force.
    load
        Reads them, as at the start; called in a thread.
    apply
        Takes over those that differ, given whole and by path; returns what of them needs a restart
        all the same. Called in the same thread.
    fixed
        Settings, or sections of them, that only a restart changes.
    facts
        Where the outcome is noted.
    clock
        Unix time.
    """

    def __init__(
        self,
        file: Path | None,
        current: Settings,
        *,
        load: Callable[[], Settings],
        apply: Callable[[Settings, Sequence[str]], Sequence[str]],
        fixed: Collection[str],
        facts: ReloadFacts,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.current = current
        self._file = file
        self._load = load
        self._apply = apply
        self._fixed = fixed
        self._facts = facts
        self._clock = clock
        self._asked = threading.Event()
        self._thread: threading.Thread | None = None
        facts.started(clock())

    def request(self) -> None:
        """Have the settings read again; returns at once."""
        if self._file is None:
            _LOG.info("no settings file to read again: all settings are defaults or flags")
            return
        self._asked.set()
        if self._thread is None:
            # It may hang on a disk, which must not keep the program from ending.
            self._thread = threading.Thread(target=self._run, name="settings", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while self._asked.wait():
            self._asked.clear()
            self.read()

    def read(self) -> bool:
        """Read the settings now; return whether they were taken over."""
        try:
            restart = self._take_over(self._load())
        except ConfigError as error:
            self._failed(error.mistakes)
            return False
        except Exception as error:
            # Whatever it is: the program goes on as it did.
            _LOG.exception("settings cannot be read again")
            self._failed([str(error)])
            return False
        self._facts.read(self._clock(), successful=True)
        if restart:
            _LOG.warning(
                "settings need a restart file=%s settings=%s", self._file, ",".join(restart)
            )
        return True

    def _take_over(self, loaded: Settings) -> list[str]:
        """Apply what differs; return what needs a restart."""
        found = differences(self.current, loaded)
        fixed = [path for path in found if is_under(path, self._fixed)]
        changed = [path for path in found if path not in fixed]
        wanted = with_settings_of(loaded, self.current, fixed)
        late: Sequence[str] = self._apply(wanted, changed) if changed else ()
        self.current = wanted
        _LOG.info("settings read again file=%s changed=%s", self._file, ",".join(changed) or "none")
        return [*fixed, *late]

    def _failed(self, mistakes: Sequence[str]) -> None:
        # Before the log: who reads it there finds it among the metrics too.
        self._facts.read(self._clock(), successful=False)
        _LOG.error(
            "settings not taken over, those before stay file=%s mistakes=%r", self._file, mistakes
        )
