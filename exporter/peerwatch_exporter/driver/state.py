"""The state of the driver processes and their newest answers; reports are made from it.

Nothing here waits or touches a process. ``manager.Driver`` guards it with its lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from peerwatch_exporter.catalog import family
from peerwatch_exporter.driver.in_flight import STARTING, WHOLE, InFlightRequests
from peerwatch_exporter.driver.node_view import NodeView, is_error_count, without_gpus
from peerwatch_exporter.driver.slot import ChildSlot
from peerwatch_exporter.schedule.worker import LATE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerwatch_common.metrics.spec import Family
    from peerwatch_exporter.driver.limits import Limits
    from peerwatch_exporter.driver.slot import CollectorAnswer
    from peerwatch_exporter.schedule.worker import Report

REASONS = (
    "gpu_hung",
    "library_hung",
    "library_failed",
    "crashed",
    "bad_answer",
    "driver_reloaded",
    "released",
)
_NONE: Mapping[str, str] = {}
# A process that ends or babbles is a fault of software; one that hangs may be that of its GPU.
_BY_ITSELF = {"crashed", "bad_answer"}


class DriverState:
    """The main child, those of GPUs that are set apart, and the requests in flight.

    Parameters
    ----------
    limits
        How long things may take.
    expected_count
        GPUs that the node should have; None: the most that driver or bus ever showed.
    clock
        Unix time.
    unkillable
        Returns how many processes cannot be ended.
    gpus_on_pci
        Returns how many GPUs the PCIe bus shows, for a node whose driver lists none.

    Attributes
    ----------
    main
        The child that serves all GPUs but those in ``apart``.
    apart
        By GPU index: the child that serves that one alone.
    restarts
        How often a child was ended, by reason.
    failure
        Why the library cannot be used, in a word and in a sentence, while that is so.
    """

    def __init__(
        self,
        limits: Limits,
        expected_count: int | None,
        clock: Callable[[], float],
        unkillable: Callable[[], int],
        gpus_on_pci: Callable[[], int] = lambda: 0,
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._unkillable = unkillable
        self._view = NodeView(expected_count, gpus_on_pci)
        self._intervals: dict[str, float] = {}
        self._had_driver = False
        self._began: float | None = None
        self._said_slow = False
        self.in_flight: dict[str, InFlightRequests] = {}
        self.main = ChildSlot(gpu=None)
        self.apart: dict[int, ChildSlot] = {}
        self.restarts: Counter[str] = Counter()
        self.failure: tuple[str, str] | None = None

    def add(self, collector: str, interval_seconds: float) -> None:
        """Add a collector."""
        self.in_flight[collector] = InFlightRequests(collector)
        self._intervals[collector] = interval_seconds

    def expect(self, count: int | None) -> None:
        """Expect so many GPUs from now on, as in the constructor."""
        self._view.expect(count)

    def slots(self) -> list[ChildSlot]:
        """Return all places for children."""
        return [self.main, *self.apart.values()]

    def request(self, collector: str, now: float) -> None:
        """Ask all children, unless they are asked already."""
        if self._began is None:
            self._began = now
        for slot in self.slots():
            slot.ask(collector, now)
        in_flight = self.in_flight[collector]
        if in_flight.asked_at is None and self.main.absent is None:
            in_flight.begin(now)

    def is_awaited(self, collector: str) -> bool:
        """Return whether an answer is due from a child that can be expected to give one."""
        if self.in_flight[collector].asked_at is not None:
            return True
        return any(
            slot.healthy_since is not None and collector in slot.asked
            for slot in self.apart.values()
        )

    def answered(self, slot: ChildSlot, collector: str, answer: CollectorAnswer) -> None:
        """Take a child's answer."""
        slot.answered(collector, answer)
        in_flight = self.in_flight[collector]
        if slot.gpu is not None:
            if answer.success:
                in_flight.answered([str(slot.gpu)])
            return
        self.failure = None
        self._had_driver = True
        in_flight.end()
        if answer.success:
            in_flight.last_success = self._clock()
            in_flight.answered(in_flight.stuck_since.keys() - {str(gpu) for gpu in self.apart})

    def child_ended(self, slot: ChildSlot) -> None:
        """Keep what must outlive a slot's child."""
        answer = slot.answers.get("gpu")
        if answer is not None:
            self._view.child_ended(answer.families)
            # They are among the past ones now; an answer that is kept must not count them again.
            families = [item for item in answer.families if not is_error_count(item)]
            slot.answers["gpu"] = replace(answer, families=families)
        slot.forget()

    def expects_gpus(self) -> bool:
        """Return whether the node should have GPUs."""
        return self._view.expected() > 0

    def without_driver(self, reason: str, start_at: float, error: str | None = None) -> None:
        """Do without a driver until some time; ``error`` is a word for why, None for a release."""
        self.apart.clear()
        self.main.answers.clear()
        self.main.absent = reason
        self.main.absent_error = error
        self.main.start_at = start_at
        for in_flight in self.in_flight.values():
            in_flight.end()
            in_flight.stuck_since.clear()

    def report(self, collector: str, now: float) -> Report:
        """Return what the node's GPUs say for a collector."""
        in_flight = self.in_flight[collector]
        under_way = in_flight.asked_at is not None
        if self.main.absent is not None or (under_way and self.failure is not None):
            return self._report_without_library(in_flight, now)
        unresponsive = self._unresponsive_gpus(in_flight, now)
        if under_way and self._is_starting(now):
            return in_flight.report((), None, error=STARTING, success=False, now=now)
        # That the first child still loads is one cause, and one line of the manager's.
        is_loading = under_way and self._is_first()
        if in_flight.asked_at is not None:
            in_flight.expire()
            gpu = None if self.main.child is None else self.main.child.activity().gpu
            # While the child is started again after a GPU hung it, only that GPU counts as stuck.
            if gpu is not None or in_flight.asked_at not in in_flight.stuck_since.values():
                in_flight.stuck(WHOLE if gpu is None else str(gpu), in_flight.asked_at)
            unresponsive |= set() if gpu is None else {gpu}
        parts = self._parts(collector, now, under_way=under_way, unresponsive=unresponsive)
        unreadable = self._unreadable(collector, unresponsive)
        families = self._families(collector, parts, unreadable)
        answer = self.main.answers.get(collector)
        if under_way or answer is None:
            error = "deadline_exceeded"
            return in_flight.report(
                families, None, error=error, success=False, now=now, is_logged=not is_loading
            )
        error_word = answer.error or ("gpu_stuck" if unresponsive else None)
        return in_flight.report(families, answer, error=error_word, success=answer.success, now=now)

    def _report_without_library(self, in_flight: InFlightRequests, now: float) -> Report:
        """Return the report of a node whose GPUs no call can reach: a failure if any are expected.

        The cause is known, so nothing counts as late or stuck.
        """
        in_flight.stuck_since.clear()
        error, detail = self.failure or (self.main.absent_error, self.main.absent or "")
        if error is not None and not self.expects_gpus() and self.failure is None:
            error = None
        # The newest values are held as in any restart; none are left once it was given up.
        parts = self._parts(in_flight.collector, now, under_way=True, unresponsive=frozenset())
        families = self._families(in_flight.collector, parts, unusable=error is not None)
        if error is None:
            in_flight.last_success = self._clock()
            return in_flight.report(families, None, error=None, success=True, now=now)
        return in_flight.report(families, None, error=error, success=False, now=now, detail=detail)

    def _families(
        self,
        collector: str,
        parts: list[list[Family]],
        unreadable: Mapping[str, str] = _NONE,
        *,
        unusable: bool = False,
    ) -> tuple[Family, ...]:
        """Return what the children answered for a collector, and what is known of themselves."""
        families = self._view.join(collector, parts, unreadable, unusable=unusable)
        if collector == self._own_reporter():
            return (*families, *self._own_families())
        return families

    def _is_starting(self, now: float) -> bool:
        """Return whether the first child of all may still be loading: late, but no failure."""
        if self._began is None:
            return False
        return self._is_first() and now - self._began < self._limits.first_start

    def slow_start(self, now: float) -> float | None:
        """Return for how long the first child has been loading, once, when that is late."""
        if self._began is None or self._said_slow or not self._is_first():
            return None
        seconds = now - self._began
        self._said_slow = self.main.absent is None and seconds >= LATE_SECONDS
        return seconds if self._said_slow else None

    def _is_first(self) -> bool:
        """Return whether no child ever answered, and none was ended."""
        return not self._had_driver and not self.restarts.total()

    def _unresponsive_gpus(self, in_flight: InFlightRequests, now: float) -> frozenset[int]:
        """Return the GPUs set apart that have not answered, and note since when."""
        unresponsive = set()
        for gpu, slot in self.apart.items():
            asked = slot.asked.get(in_flight.collector)
            if slot.child is None or slot.healthy_since is None or asked is not None:
                unresponsive.add(gpu)
                in_flight.stuck(str(gpu), now if asked is None else asked)
        return frozenset(unresponsive)

    def _parts(
        self, collector: str, now: float, *, under_way: bool, unresponsive: frozenset[int]
    ) -> list[list[Family]]:
        """Return the families of every child whose newest answer still stands."""
        parts = []
        answer = self.main.answers.get(collector)
        if answer is not None:
            longest = self._intervals[collector] + self._limits.hold
            if not under_way or now - answer.at <= longest:
                parts.append(without_gpus(answer.families, unresponsive.union(self.apart)))
        for gpu, slot in self.apart.items():
            if gpu not in unresponsive and collector in slot.answers:
                parts.append(slot.answers[collector].families)
        return parts

    def _unreadable(self, collector: str, unresponsive: frozenset[int]) -> dict[str, str]:
        """Return, by GPU or "" for all, which fault of software kept it from being asked."""
        found = {
            str(gpu): slot.ended_by
            for gpu, slot in self.apart.items()
            if gpu in unresponsive and slot.ended_by in _BY_ITSELF
        }
        answer = self.main.answers.get(collector)
        if answer is not None and not answer.success and answer.error is not None:
            found[WHOLE] = answer.error
        elif answer is None and self.main.ended_by in _BY_ITSELF:
            found[WHOLE] = self.main.ended_by
        return found

    def _own_reporter(self) -> str:
        """Return the collector whose report carries what is known of the children themselves."""
        return "gpu" if "gpu" in self.in_flight else min(self.in_flight)

    def _own_families(self) -> list[Family]:
        restarts = family("exporter_nvml_restarts_total")
        unkillable = family("exporter_nvml_unkillable_processes")
        # A node that never had a driver says nothing about its children.
        if self._had_driver or self.restarts:
            restarts.rows = [((reason,), self.restarts[reason]) for reason in REASONS]
            unkillable.rows = [((), self._unkillable())]
        return [restarts, unkillable]
