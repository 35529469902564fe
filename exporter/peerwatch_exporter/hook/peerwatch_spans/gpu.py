"""Times segments where they happen: on the GPU, by events on its streams.

An event is recorded at each end of a segment, and nobody ever waits for it: a daemon thread asks
each stream (which finishes in order) how far it is, and takes the times of what is done. The age of
the oldest event that is not done says for how long the GPU has been in a segment.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from .recorder import ON_GPU

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .recorder import Recorder
    from .sampling import StepSampler

VARIABLE = "PEERWATCH_SPANS_GPU"
# 200 spans a step with two events each, and a GPU that is ten steps behind the host.
MOST_EVENTS = 4096
# elapsed_time is a float of milliseconds: within 5 s it resolves half a microsecond.
REFERENCE_NS = 5_000_000_000
# The clocks of host and GPU drift apart by tens of millionths: 0.1 ms in so many seconds.
ANCHOR_NS = 5_000_000_000


class Begun(NamedTuple):
    """A segment that was begun: when the host did so, and the event on the GPU's stream.

    It stands for as many as ``weight`` says.
    """

    host_ns: int
    event: Any
    stream: tuple[int, int]
    weight: int = 1


_LEFT_OUT = Begun(0, None, (0, 0))


class Pending(NamedTuple):
    """A segment that the host has given to the GPU completely."""

    segment: int
    begun: Begun
    end: Any
    device: int
    detail: int
    value: int


def wanted() -> bool:
    """Return False if the environment asks for the host's times also where there is a GPU."""
    return os.environ.get(VARIABLE, "1") != "0"


class GpuTimer:
    """Times segments by a bounded pool of events.

    Parameters
    ----------
    cuda
        ``torch.cuda``.
    recorder
        Takes the spans.
    sampler
        Says in which steps those segments are timed that the program names in every step.

    Attributes
    ----------
    sampler
        The same.
    """

    def __init__(self, cuda: Any, recorder: Recorder, sampler: StepSampler) -> None:  # noqa: ANN401 - a module of torch
        self.sampler = sampler
        self._cuda = cuda
        self._recorder = recorder
        self._free: deque[Any] = deque()
        self._made = 0
        # By stream, the end of which is asked for.
        self._pending: dict[tuple[int, int], deque[Pending]] = {}
        self._clocks: dict[int, GpuClock] = {}
        self._is_initialized = False
        self._stream = stream_finder(cuda)

    def begin_sampled(self) -> Begun | int:
        """Begin a segment that only some steps time; else as ``begin``."""
        sampler = self.sampler
        if not sampler.is_timed:
            return _LEFT_OUT
        sampler.seen += 1
        return self.begin(sampler.every)

    def begin(self, weight: int = 1) -> Begun | int:
        """Return a segment's begin; the host's time alone where the GPU cannot be asked."""
        now = time.perf_counter_ns()
        if not self._is_initialized:
            # Before the program uses the GPU, asking would initialise it.
            self._is_initialized = self._cuda.is_initialized()
            if not self._is_initialized:
                return now
        if self._cuda.is_current_stream_capturing():
            return now  # in a graph there is no time
        key, stream = self._stream()
        event = self._event()
        if event is None:
            self._recorder.dropped += 1
            return Begun(now, None, (0, 0))
        event.record(stream)
        return Begun(now, event, key, weight)

    def end(self, segment: int, begun: Begun, detail: int, value: int) -> None:
        """End a segment on the stream that is current now."""
        if begun.event is None:
            return
        event = None if self._cuda.is_current_stream_capturing() else self._event()
        if event is None:
            self._recorder.dropped += 1
            self._free.append(begun.event)
            return
        key, stream = self._stream()
        event.record(stream)
        waiting = self._pending.get(key)
        if waiting is None:
            waiting = self._pending.setdefault(key, deque())
        waiting.append(Pending(segment, begun, event, key[0], detail, value))

    def discard(self, begun: Begun) -> None:
        """Give back the event of a segment that is not timed after all."""
        if begun.event is not None:
            self._free.append(begun.event)

    def poll(self) -> bool:
        """Take the times of all that the GPU has finished; return whether there is more to come."""
        for key, waiting in list(self._pending.items()):
            for _ in range(_finished(waiting)):
                # A segment may have begun on another stream, which is behind.
                if waiting[0].begun.stream != key and not waiting[0].begun.event.query():
                    break
                self._finish(waiting.popleft())
        return any(self._pending.values())

    def oldest_pending(self) -> tuple[int, int]:
        """Return segment and begin (monotonic, ns) of the oldest unfinished one; 0, 0 if none."""
        heads = [waiting[0] for waiting in list(self._pending.values()) if waiting]
        if not heads:
            return 0, 0
        oldest = min(heads, key=lambda head: head.begun.host_ns)
        return oldest.segment, oldest.begun.host_ns

    def _event(self) -> Any:  # noqa: ANN401 - a torch.cuda.Event
        try:
            return self._free.popleft()
        except IndexError:
            if self._made >= MOST_EVENTS:
                return None
            self._made += 1
            return self._cuda.Event(enable_timing=True)

    def _finish(self, pending: Pending) -> None:
        begun, end = pending.begun, pending.end
        unused = [begun.event, end]
        try:
            if begun.stream[0] != pending.device:
                self._recorder.dropped += 1  # the program went on to another GPU in between
                return
            duration_ns = int(begun.event.elapsed_time(end) * 1e6)
            clock = self._clocks.setdefault(pending.device, GpuClock())
            start_ns = clock.host_time(begun)
            if clock.reference is begun.event:
                unused = [end] if clock.former is None else [end, clock.former]
            self._recorder.add(
                pending.segment,
                start_ns,
                start_ns + duration_ns,
                pending.detail,
                pending.value,
                ON_GPU,
                begun.weight,
            )
        finally:
            self._free.extend(unused)


def _finished(waiting: deque[Pending]) -> int:
    """Return how many of a stream's segments are done: the first ones, found by halving."""
    low, high = 0, len(waiting)
    if high and waiting[high - 1].end.query():
        return high
    while low < high:
        middle = (low + high) // 2
        if waiting[middle].end.query():
            low = middle + 1
        else:
            high = middle
    return low


def stream_finder(cuda: Any) -> Callable[[], tuple[tuple[int, int], Any]]:  # noqa: ANN401
    """Return what finds device and handle of the current stream, and the stream.

    ``torch.cuda.current_stream`` makes a new object at each call, which takes longer than to record
    an event. What compiled kernels ask for the handle takes a tenth of that; the object is kept.
    """
    torch = sys.modules.get("torch")
    torch_c = torch._C if torch is not None and torch.cuda is cuda else None  # noqa: SLF001
    device_of = getattr(torch_c, "_cuda_getDevice", None)
    handle_of = getattr(torch_c, "_cuda_getCurrentRawStream", None)
    if device_of is None or handle_of is None:

        def current() -> tuple[tuple[int, int], Any]:
            stream = cuda.current_stream()
            return (stream.device_index, stream.cuda_stream), stream

        return current

    streams: dict[tuple[int, int], Any] = {}

    def known() -> tuple[tuple[int, int], Any]:
        device = device_of()
        key = device, handle_of(device)
        stream = streams.get(key)
        if stream is None:
            stream = streams.setdefault(key, cuda.current_stream())
        return key, stream

    return known


class GpuClock:
    """Turns the times of one GPU's events into the host's.

    An event happens after the host recorded it: by how much is not known, but each one gives a
    bound, and the tightest of the last seconds is that of an event that found the GPU idle.

    Attributes
    ----------
    reference, former
        The event against which others are timed, and the one it replaced.
    """

    def __init__(self) -> None:
        self.reference: Any = None
        self.former: Any = None
        self._reference_ns = 0
        self._began_ns = 0
        # Host minus GPU, the largest bound of this interval and of the one before.
        self._bounds: list[int | None] = [None, None]

    def host_time(self, begun: Begun) -> int:
        """Return when a segment began by the host's monotonic clock, in nanoseconds."""
        if self.reference is None:
            self.reference, self._began_ns = begun.event, begun.host_ns
        gpu_ns = self._reference_ns + int(self.reference.elapsed_time(begun.event) * 1e6)
        if gpu_ns - self._reference_ns > REFERENCE_NS:
            self.former, self.reference = self.reference, begun.event
            self._reference_ns = gpu_ns
        if begun.host_ns - self._began_ns > ANCHOR_NS:
            self._bounds = [None, self._bounds[0]]
            self._began_ns = begun.host_ns
        newest = begun.host_ns - gpu_ns
        before = self._bounds[0]
        self._bounds[0] = newest if before is None else max(newest, before)
        return gpu_ns + max(bound for bound in self._bounds if bound is not None)
