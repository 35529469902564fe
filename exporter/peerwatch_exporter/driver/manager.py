"""Keeps the driver processes alive, and reports what they answered; never waits for them.

One process serves all GPUs. When it stops answering, shared memory says which GPU it was calling:
that one is set apart and gets a process of its own, a fresh one serves the others. A process that
hangs outside of any GPU, crashes or sends nonsense is started again after a pause. The thread
here does all of that; ``request`` and ``report`` only read and write what it keeps.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import threading
import time
from typing import TYPE_CHECKING, Any

from peerwatch_common.logs import log_form
from peerwatch_exporter.driver.child import COMMAND, ChildGoneError, ChildProcess
from peerwatch_exporter.driver.limits import Limits
from peerwatch_exporter.driver.reaper import Reaper
from peerwatch_exporter.driver.slot import ChildSlot, decoded
from peerwatch_exporter.driver.state import DriverState
from peerwatch_exporter.driver.version import DriverVersion
from peerwatch_exporter.driver.wire import WireError
from peerwatch_exporter.driver.workers import DriverWorker
from peerwatch_exporter.settings.plain import to_plain
from peerwatch_exporter.sources.host.nvidia_gpus import NvidiaGpusOnPci
from peerwatch_exporter.sources.host.sysfs import Sysfs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peerwatch_exporter.collector import Registration
    from peerwatch_exporter.schedule.worker import Report
    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

_LOG = logging.getLogger(__name__)

# Children of their own for GPUs that hang; further ones are left out until one of them recovers.
# Chosen: half the GPUs of a usual node; where more hang, the fault is not in single ones.
MOST_APART = 4
# An eightieth of a collector's deadline of 0.8 s.
_GATHER_SECONDS = 0.01


class Driver:
    """The driver processes of one exporter.

    Call ``workers`` before ``start``.

    Parameters
    ----------
    config
        The exporter's settings; handed on to the children.
    sources
        For its clocks, its GPU facts and its own processes.
    command
        How to start a child; unset: ``python -m peerwatch_exporter.driver``.
    limits
        How long things may take.
    kill
        Sends a signal to a process id.
    """

    def __init__(
        self,
        config: ExporterConfig,
        sources: Sources,
        *,
        command: Sequence[str] | None = None,
        limits: Limits | None = None,
        kill: Callable[[int, int], None] = os.kill,
    ) -> None:
        self._command = command or COMMAND
        self._limits = limits or Limits()
        self._deadline_seconds = config.deadline_seconds
        self._config = to_plain(config)
        self._sources = sources
        self._monotonic = sources.monotonic
        self._modules: list[tuple[str, str]] = []
        self._reaper = Reaper(self._limits.death, kill)
        self._changed = threading.Condition()
        self._state = DriverState(
            self._limits,
            config.gpu.expected_count,
            sources.clock,
            self._reaper.unkillable,
            NvidiaGpusOnPci(Sysfs(config.paths.sysfs)).count,
        )
        self._version = DriverVersion(config.paths.procfs)
        self._released_until: float | None = None
        self._wake_read = self._wake_write = -1
        self._selector = selectors.DefaultSelector()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._checked_at = 0.0

    def workers(self, collectors: Sequence[Registration]) -> list[DriverWorker]:
        """Return a worker for each collector; these are the ones that the children run."""
        for collector in collectors:
            self._state.add(collector.name, collector.interval_seconds)
            self._modules.append((collector.name, collector.factory.__module__))
        return [
            DriverWorker(self, collector.name, collector.interval_seconds)
            for collector in collectors
        ]

    def start(self) -> None:
        """Start the first child, unless no collector needs one; returns at once."""
        if not self._modules:
            return
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        # The first child starts at once, not when there is something to look after.
        self._wake()
        # The kernel ends the children with the thread that started them: one thread for all.
        self._thread = threading.Thread(target=self._run, name="driver", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the children."""
        if self._thread is None:
            return
        self._stopping = True
        self._wake()
        self._thread.join()
        self._thread = None
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def release(self, seconds: float) -> None:
        """End the children, so that the driver can be unloaded or exchanged.

        They start again after this time, or as soon as another driver is loaded.
        """
        _LOG.info("driver released seconds=%g", seconds)
        with self._changed:
            self._released_until = self._monotonic() + seconds
        if self._thread is not None:
            self._wake()

    def follow(self, config: ExporterConfig) -> None:
        """Have the children follow other settings, those that run and those that come."""
        with self._changed:
            self._deadline_seconds = config.deadline_seconds
            self._config = to_plain(config)
            self._state.expect(config.gpu.expected_count)
            for slot in self._state.slots():
                if slot.child is not None:
                    slot.child.send("settings", self._config)

    def request(self, collector: str) -> None:
        """Ask all children for a collector, unless that is under way."""
        with self._changed:
            self._state.request(collector, self._monotonic())

    def report(self, collector: str, deadline: float) -> Report:
        """Return what the node's GPUs say for a collector, waiting until ``deadline`` at most."""
        with self._changed:
            if not self._state.in_flight[collector].expired:
                self._changed.wait_for(
                    lambda: not self._state.is_awaited(collector),
                    timeout=max(0.0, deadline - self._monotonic()),
                )
            return self._state.report(collector, self._monotonic())

    def is_stuck(self, collector: str) -> bool:
        """Return whether a run has passed its deadline and not returned."""
        with self._changed:
            return self._state.in_flight[collector].expired

    def _run(self) -> None:
        self._checked_at = self._monotonic()
        while not self._stopping:
            try:
                self._selector.select(self._limits.poll)
                # The answers come one after another: better be woken once for several of them.
                time.sleep(_GATHER_SECONDS)
                for key, _ in self._selector.select(0):
                    if key.data is None:
                        os.read(self._wake_read, 64)
                    else:
                        self._listen(key.data)
                self._tend()
            except Exception:
                # Whatever it is: without this thread no GPU would ever be read again.
                _LOG.exception("driver manager failed")
        for slot in self._state.slots():
            self._end(slot)
        self._reaper.wait(self._monotonic)

    def _wake(self) -> None:
        # Where the pipe is full, enough wake-ups are waiting already.
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"!")

    def _listen(self, slot: ChildSlot) -> None:
        """Take what a child sent."""
        child = slot.child
        if child is None:
            return
        try:
            messages = [decoded(child, message) for message in child.receive()]
            with self._changed:
                # Whoever waits is woken once for all of them, when the lock is free again.
                self._changed.notify_all()
                for message in messages:
                    # One of the messages before may have ended it.
                    if slot.child is child:
                        self._take(slot, *message)
        except ChildGoneError:
            with self._changed:
                self._lost(slot)
                self._changed.notify_all()
        except Exception as error:
            _LOG.warning("driver process sent nonsense gpu=%s error=%r", slot.name, error)
            with self._changed:
                if slot.child is child:
                    self._fail(slot, "bad_answer", child.activity().gpu)

    def _take(self, slot: ChildSlot, kind: str, *arguments: Any) -> None:  # noqa: ANN401
        if kind == "answer":
            self._state.answered(slot, *arguments)
        elif kind == "facts":
            self._sources.gpus.take_in(*arguments[0])
        elif kind == "ready":
            slot.absent = None
        elif kind == "absent":
            self._absent(slot, *arguments)
        elif kind == "failed":
            error, detail = arguments
            if (error, detail) != self._state.failure:
                _LOG.warning("NVML cannot be used error=%s detail=%r", error, detail)
            self._restart(slot, "library_failed")
            self._state.failure = error, detail
        elif kind == "reloaded":
            _LOG.info("driver was reloaded detail=%r", arguments[0])
            self._reloaded(slot)
        else:
            raise WireError(f"There is no message of the kind {kind!r}.")

    def _absent(self, slot: ChildSlot, error: str, detail: str) -> None:
        if slot.gpu is not None:
            self._restart(slot, None)
            return
        # A node without GPUs finds so once a minute: worth a line the first time.
        if detail != slot.absent:
            level = logging.WARNING if self._state.expects_gpus() else logging.INFO
            _LOG.log(level, "no GPU driver error=%s detail=%r", error, detail)
        self._give_up(detail, self._monotonic() + self._limits.absence, error)

    def _give_up(self, reason: str, start_at: float, error: str | None = None) -> None:
        """Do without a driver until some time; ``error`` is a word for why, None for a release."""
        for slot in self._state.slots():
            self._end(slot)
        self._state.failure = None
        self._state.without_driver(reason, start_at, error)

    def _reloaded(self, slot: ChildSlot) -> None:
        """Begin anew with all GPUs: indexes may mean other boards now."""
        for apart in self._state.apart.values():
            self._end(apart)
        self._state.apart.clear()
        self._restart(slot if slot.gpu is None else self._state.main, "driver_reloaded")

    def _lost(self, slot: ChildSlot) -> None:
        child = slot.child
        if child is None:
            return
        status = child.process.poll()
        _LOG.warning("driver process ended by itself gpu=%s status=%s", slot.name, status)
        self._fail(slot, "crashed", child.activity().gpu)

    def _fail(self, slot: ChildSlot, reason: str, gpu: int | None) -> None:
        """End a child that failed; a GPU that it was calling is set apart."""
        if slot.gpu is None and gpu is not None:
            self._state.apart.setdefault(gpu, ChildSlot(gpu=gpu)).ended_by = reason
            names = ",".join(map(str, sorted(self._state.apart)))
            _LOG.warning("GPU set apart gpu=%d reason=%s all=%s", gpu, reason, names)
            self._restart(slot, reason)
            # The cause is out of the way: nothing to wait for.
            slot.start_at = self._monotonic()
        else:
            self._restart(slot, reason)

    def _restart(self, slot: ChildSlot, reason: str | None) -> None:
        if reason is not None:
            self._state.restarts[reason] += 1
            slot.ended_by = reason
        # What this child failed for may be another reason than the one before.
        self._state.failure = None
        self._end(slot)
        slot.wait(self._monotonic(), self._limits)

    def _end(self, slot: ChildSlot) -> None:
        """Kill a slot's child, if there is one."""
        child = slot.child
        if child is None:
            return
        self._selector.unregister(child.socket)
        self._sources.own_processes.remove(child.process.pid)
        self._reaper.reap(child, slot.gpu, self._monotonic())
        self._state.child_ended(slot)

    def _tend(self) -> None:
        now = self._monotonic()
        with self._changed:
            if now - self._checked_at > self._limits.poll + self._limits.hang:
                for slot in self._state.slots():
                    slot.restart_deadlines(now)
            self._checked_at = now
            slow = self._state.slow_start(now)
            if slow is not None:
                _LOG.warning("driver process is slow to start seconds=%.1f", slow)
            self._reaper.poll(now)
            self._check_driver(now)
            for slot in self._state.slots():
                self._watch(slot, now)
            self._readmit(now)
            starting = [slot for slot in self._startable() if slot.start_at <= now]
        for slot in starting:
            self._begin(slot)

    def _check_driver(self, now: float) -> None:
        changed = self._version.changed()
        if self._released_until is not None:
            if not changed and now < self._released_until:
                if self._state.main.absent is None or self._state.main.child is not None:
                    self._state.restarts["released"] += 1
                    self._give_up("The driver is released.", self._released_until)
                self._state.main.start_at = self._released_until
                return
            self._released_until = None
            self._state.main.start_at = now
        if changed and self._state.main.child is None:
            self._state.main.start_at = now

    def _watch(self, slot: ChildSlot, now: float) -> None:
        if any(slot.is_overdue(name, now, self._deadline_seconds) for name in slot.asked):
            slot.healthy_since = None
        elif slot.healthy_since is not None and now - slot.healthy_since >= self._limits.stable:
            slot.pause = 0.0
        activity = slot.hangs(now, self._deadline_seconds, self._limits)
        if activity is None:
            return
        gpu = activity.gpu if slot.gpu is None else slot.gpu
        reason = "library_hung" if activity.gpu is None else "gpu_hung"
        _LOG.error("driver process hangs and is ended gpu=%s calling=%s", slot.name, gpu)
        self._fail(slot, reason, gpu if activity.gpu is not None else None)

    def _readmit(self, now: float) -> None:
        """Give GPUs that are well again back to the main child."""
        well = [
            gpu
            for gpu, slot in self._state.apart.items()
            if slot.healthy_since is not None and now - slot.healthy_since >= self._limits.stable
        ]
        for gpu in well:
            self._end(self._state.apart.pop(gpu))
            _LOG.info("GPU answers again and is no longer set apart gpu=%d", gpu)
        if well and self._state.main.child is not None:
            self._state.main.child.send("select", sorted(self._state.apart))

    def _startable(self) -> list[ChildSlot]:
        """Return the slots that should have a child and have none."""
        apart = (
            list(self._state.apart.values())[:MOST_APART] if self._state.main.absent is None else []
        )
        return [
            slot
            for slot in (self._state.main, *apart)
            if slot.child is None and self._reaper.may_start(slot.gpu)
        ]

    def _begin(self, slot: ChildSlot) -> None:
        """Start a child and ask it for everything that is unanswered."""
        settings = {
            "config": self._config,
            "collectors": self._modules,
            "only": slot.gpu,
            "excluded": sorted(self._state.apart) if slot.gpu is None else [],
            "log_level": logging.getLevelName(logging.getLogger().getEffectiveLevel()),
            "log_format": log_form(),
        }
        try:
            child = ChildProcess(self._command, settings)
        except OSError as error:
            _LOG.error("driver process cannot be started error=%s", error)
            with self._changed:
                slot.wait(self._monotonic(), self._limits)
            return
        self._selector.register(child.socket, selectors.EVENT_READ, slot)
        self._sources.own_processes.add("driver", child.process.pid)
        with self._changed:
            now = self._monotonic()
            slot.started(child, now)
            for name, in_flight in self._state.in_flight.items():
                if in_flight.asked_at is not None or slot.gpu is not None:
                    slot.ask(name, now)
