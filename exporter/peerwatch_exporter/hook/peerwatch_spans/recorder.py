"""Takes spans from the training loop at the cost of one or two microseconds each.

The loop adds to tallies of its own thread and writes a record into the ring; a daemon thread
publishes the totals once a second. Nothing here may raise into the loop or make it wait: there is
no lock, for a collector of garbage may add a span in the middle of adding another.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from .clock import host_clock
from .names import GC, Names
from .rank import FEWEST_RECORDS, job_id, rank_of_process, records_to_keep
from .ring import MAX_SEGMENTS, RECORD, RingFile, State, pack_record, places
from .tally import LocalTally, Tally

# Looked up once: it is called for every span.
_now = time.perf_counter_ns

if TYPE_CHECKING:
    from typing import Any

    from .clock import HostClock
    from .gpu import GpuTimer

# Chosen: a program's own threads are a few; each has totals that are added up every second.
MOST_THREADS = 64
# A set bit of the segment: the GPU measured the duration, by events on its stream.
ON_GPU = 0x8000

# As often as the exporter reads.
_PERIOD_SECONDS = 1.0
# While events are waited for: what the GPU has finished goes back to the pool of events. At 437
# spans a second, some 44 of its 4,096.
_GPU_PERIOD_SECONDS = 0.05


class Recorder:
    """The spans of this process, and the file of its rank once it is known to be one.

    Parameters
    ----------
    directory
        Where the file stands.

    Attributes
    ----------
    step
        Number of the step under way, from 0.
    place
        Memory of records, and their places to come in it; see ``ring.places``.
    newest
        Mark << 32 of the last record; 0 before the first.
    names
        Names of segments and details, and their numbers.
    capacity
        Of the ring, in records.
    gpu
        Times segments on the GPU; ``None`` where there is none.
    clock
        The host's clock against rank 0's; ``None`` while nothing can be known.
    local
        Its ``tally`` is that of the calling thread.
    """

    def __init__(self, directory: str) -> None:
        self.step = 0
        self.gpu: GpuTimer | None = None
        self.clock: HostClock | None = None
        self.dropped = 0
        self._directory = directory
        self.capacity = records_to_keep()
        self.newest = 0
        self._written = 0
        # Until the rank is known, they wait here.
        waiting = memoryview(bytearray(FEWEST_RECORDS * RECORD.size))
        self.place = waiting, places(FEWEST_RECORDS, 0)
        self.names = Names()
        self._named = (0, 0)
        self._published = [(0, 0)] * MAX_SEGMENTS
        self._tallies: list[Tally] = []
        self._ended_tally = Tally()
        self._gc_tally = Tally()
        self.local = LocalTally(self)
        self._file: RingFile | None = None
        self._failed = False
        self._silent = False
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._later: list[Any] = []

    # In the training loop

    def tally(self) -> Tally:
        """Return the tally of the calling thread."""
        tally: Tally = self.local.tally
        return tally

    def begin(self, segment: int, *, on_host: bool = False) -> Any:  # noqa: ANN401 - what ``end`` is given
        """Begin a span; return what ``end`` is given, None if it is inside of its like.

        Parameters
        ----------
        segment
            Its number.
        on_host
            Whether the host waits for it, so that its time is the host's also where there is a GPU.
        """
        try:
            depth = self.local.tally.depth
            if depth[segment]:
                return None
            depth[segment] = 1
            if self.gpu is not None and not on_host:
                return self.gpu.begin()
            return _now()
        except Exception:
            return None

    def end(self, segment: int, begun: Any, detail: int = 0, value: int | None = None) -> None:  # noqa: ANN401 - what ``begin`` returned
        """End a span that ``begin`` returned something for.

        Parameters
        ----------
        segment
            Its number.
        begun
            What ``begin`` returned.
        detail
            Number of its group and kind.
        value
            Sequence number; None: the number of the step.
        """
        now = _now()
        try:
            tally = self.local.tally
            tally.depth[segment] = 0
            if self._silent:
                return
            step = self.step if value is None else value
            if type(begun) is not int:
                if self.gpu is not None:
                    self.gpu.end(segment, begun, detail, step)
                return
            # As ``add`` and ``write`` do; their calls would double what a span costs.
            took = now - begun
            tally.nanoseconds[segment] += took
            tally.counts[segment] += 1
            records, following = self.place
            at, mark = next(following)
            last = mark | detail << 16 | segment
            pack_record(records, at, begun, took * 1e-9, step & 0xFFFFFFFF, last)
            self.newest = mark
        except Exception:
            self.lost()

    def add(
        self,
        segment: int,
        start: int,
        end: int,
        detail: int = 0,
        value: int | None = None,
        flag: int = 0,
        weight: int = 1,
    ) -> None:
        """Add a span whose start and end (monotonic, ns) are known; ``flag`` may be ``ON_GPU``.

        In the totals it stands for as many as ``weight`` says.
        """
        if self._silent:
            return
        try:
            tally = self.local.tally
            tally.nanoseconds[segment] += (end - start) * weight
            tally.counts[segment] += weight
            number = self.step if value is None else value
            self.write(segment | flag, start, end - start, detail, number)
        except Exception:
            self.lost()

    def write(self, segment: int, start: int, duration: int, detail: int, value: int) -> None:
        """Write a record; times in nanoseconds."""
        records, following = self.place
        at, mark = next(following)
        last = mark | detail << 16 | segment
        pack_record(records, at, start, duration * 1e-9, value & 0xFFFFFFFF, last)
        self.newest = mark

    def lost(self) -> None:
        """Count a span that was not written; the first after 2^32 finds no mark for it."""
        self.dropped += 1
        if self.newest >> 32 == 0xFFFFFFFF:
            records = self.place[0]
            self.place = records, places(len(records) // RECORD.size, 0)

    def discard(self, begun: Any) -> None:  # noqa: ANN401 - what ``begin`` returned
        """Forget a span that was begun."""
        if self.gpu is not None and type(begun) is not int:
            self.gpu.discard(begun)

    def add_gc(self, start: int, end: int, *, shortest: int) -> None:
        """Add a run of the garbage collector; only a longer one gets a record of its own.

        The collector runs in any thread and in the middle of anything; one at a time.
        """
        if self._silent:
            return
        self._gc_tally.nanoseconds[GC] += end - start
        self._gc_tally.counts[GC] += 1
        if end - start >= shortest:
            self.write(GC, start, end - start, 0, self.step)

    def later(self, work: Any) -> None:  # noqa: ANN401 - a function without arguments
        """Have the daemon thread call a function."""
        self._later.append(work)
        self._wake.set()

    # Around it

    def time_on(self, gpu: GpuTimer) -> None:
        """Have a GPU take the times from now on."""
        self.gpu = gpu
        for tally in self._tallies:
            tally.segments.clear()

    def start(self) -> None:
        """Start the daemon thread, once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="peerwatch-spans", daemon=True)
            atexit.register(self._end)
            self._thread.start()

    def join(self) -> Tally:
        """Return a tally for the calling thread."""
        tally = Tally()
        if len(self._tallies) >= MOST_THREADS and not self._silent:
            return self._ended_tally  # an update may be lost there, and no more than that
        self._tallies.append(tally)
        return tally

    def silence(self) -> None:
        """Write nothing from now on: this is a forked child, and the file is its parent's."""
        self._silent = True
        self.gpu = None
        self._file = None
        self._tallies.clear()
        self.names = Names()  # another thread may have held its lock
        self.place = memoryview(bytearray(RECORD.size)), places(1, 0)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._silent:
            if time.monotonic() >= due:
                due = time.monotonic() + _PERIOD_SECONDS
                with suppress(Exception):
                    self._open_if_rank()
                with suppress(Exception):
                    self.publish()
            with suppress(Exception):
                while self._later:
                    self._later.pop(0)()
            busy = False
            if self.gpu is not None:
                with suppress(Exception):
                    busy = self.gpu.poll()
            pause = max(0.0, due - time.monotonic())
            self._wake.wait(min(pause, _GPU_PERIOD_SECONDS) if busy else pause)
            self._wake.clear()

    def _open_if_rank(self) -> None:
        if self._failed:
            return
        found = rank_of_process(has_stepped=self.step > 0)
        if found is None or (self._file is not None and self._file.rank == found[0]):
            return
        try:
            file = RingFile(self._directory, *found, self.capacity)
        except OSError:
            self._failed = True  # without a place to write there are no spans, and no more tries
            self._silent = True
            raise
        self._named = (0, 0)
        if self._file is None:
            self._move(file)
        else:
            with suppress(OSError):
                self._file.remove()
        self._file = file
        if self.clock is not None:
            self.clock.stop()
        with suppress(Exception):
            self.clock = host_clock(*found)
            if self.clock is not None:
                self.clock.start()
        self.place = file.records, places(file.capacity, self._count())

    def _move(self, file: RingFile) -> None:
        """Copy the records that waited for their file."""
        waiting, _ = self.place
        for slot in range(FEWEST_RECORDS):
            record = waiting[slot * RECORD.size : (slot + 1) * RECORD.size]
            number = RECORD.unpack(record)[5] - 1
            if number >= 0:
                at = number % file.capacity * RECORD.size
                file.records[at : at + RECORD.size] = record

    def publish(self) -> None:
        """Write totals and state to the file."""
        file = self._file
        if file is None:
            return
        names = self.names
        named = len(names.segments), len(names.details)
        if named != self._named:
            file.name(job_id(), names.segments[: named[0]], names.details[: named[1]])
            self._named = named
        now = time.perf_counter_ns()
        unix_offset = time.time_ns() - now
        state = State(
            unix_offset_ns=unix_offset,
            updated_ns=now,
            written=self._count(),
            dropped=self.dropped + names.dropped,
            **self._clock_state(now, unix_offset),
            **self._gpu_state(),
        )
        file.publish(state, self._totals(named[0]))

    def _count(self) -> int:
        """Return how many records were written, of which marks tell 32 bits."""
        ahead = ((self.newest >> 32) - self._written + (1 << 31)) % (1 << 32) - (1 << 31)
        self._written += max(0, ahead)
        return self._written

    def _clock_state(self, now: int, unix_offset_ns: int) -> dict[str, Any]:
        if self.clock is not None:
            return self.clock.state(now, unix_offset_ns)
        is_first = self._file is not None and self._file.rank == 0
        return {
            "clock_reference_ns": now,
            "clock_offset_ns": 0,
            "clock_drift": 0.0,
            "clock_error_seconds": 0.0,
            "clock_source": 2 if is_first else 0,
        }

    def _gpu_state(self) -> dict[str, Any]:
        segment, since = (0, 0) if self.gpu is None else self.gpu.oldest_pending()
        return {"gpu_segment": segment, "gpu_since_ns": since}

    def _totals(self, segments: int) -> list[tuple[int, int]]:
        ended = [tally for tally in self._tallies if not tally.thread.is_alive()]
        for tally in ended:
            self._tallies.remove(tally)
            for number, nanoseconds, count in tally.totals():
                self._ended_tally.nanoseconds[number] += nanoseconds
                self._ended_tally.counts[number] += count
        sums = [(0, 0)] * MAX_SEGMENTS
        for tally in (*self._tallies, self._ended_tally, self._gc_tally):
            for number, nanoseconds, count in tally.totals():
                before = sums[number]
                sums[number] = before[0] + nanoseconds, before[1] + count
        # An update that was lost among threads must not make a total fall.
        for number, (nanoseconds, count) in enumerate(self._published[:segments]):
            found = sums[number]
            self._published[number] = max(nanoseconds, found[0]), max(count, found[1])
        return self._published[:segments]

    def _end(self) -> None:
        """Take the file away at a normal end; after a crash it stays, to be read."""
        if self._silent or self._file is None:
            return
        with suppress(Exception):
            self.publish()
        if not hasattr(sys, "last_value"):
            self._silent = True
            self._wake.set()
            with suppress(OSError):
                self._file.remove()
