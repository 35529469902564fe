"""Times the segments that a program names itself, which may be hundreds in a step.

What a span costs is mostly the calls that it makes and the memory that they touch, since the work
of the program between two of them takes the caches. So a thread keeps one object for each of its
segments, with all at hand that a span needs, and its exit does in one place what ``Recorder.end``
leaves to others; tests hold the two together.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .names import SEGMENTS
from .ring import pack_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Any

    from .recorder import Recorder

# Looked up once: it is called for every span.
_now = time.perf_counter_ns
# A segment that came in so many steps, one after the other, comes in every step: evaluations and
# checkpoints take one step, now and then two.
_STEPS_IN_A_ROW = 4


class Nothing:
    """Times nothing."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *error: object) -> None:
        """Do nothing, and let exceptions pass."""


class OwnSegment:
    """Times the body of ``with`` statements as a segment, in one thread, again and again.

    Of those inside of one another only the outermost counts.

    Parameters
    ----------
    recorder
        Takes the spans.
    number
        The segment's; one that only this object times in this thread.

    Attributes
    ----------
    nanoseconds, count
        What it added so far.
    """

    __slots__ = ("_begun", "_inner", "_recorder", "count", "nanoseconds", "number")

    def __init__(self, recorder: Recorder, number: int) -> None:
        self.number = number
        self.nanoseconds = 0
        self.count = 0
        self._recorder = recorder
        self._begun: Any = None
        self._inner = 0

    def __enter__(self, clock: Callable[[], int] = _now) -> None:
        """Begin a span; the defaults here and below are what is called, at hand."""
        if self._begun is not None:
            self._inner += 1
            return
        self._begun = clock()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        clock: Callable[[], int] = _now,
        following: Callable[[Any], Any] = next,
        pack: Callable[..., None] = pack_record,
    ) -> None:
        """End it and write its record; exceptions pass."""
        now = clock()
        if self._inner:
            self._inner -= 1
            return
        begun = self._begun
        self._begun = None
        recorder = self._recorder
        try:
            took = now - begun
            self.nanoseconds += took
            self.count += 1
            records, places = recorder.place
            at, mark = following(places)
            pack(records, at, begun, took * 1e-9, recorder.step, mark | self.number)
            recorder.newest = mark
        except Exception:
            recorder.lost()


class OwnGpuSegment(OwnSegment):
    """The same where there is a GPU, which takes the times.

    A segment that comes in every step is timed in some of them only, where there are many.
    """

    __slots__ = ("_row", "_step")

    def __init__(self, recorder: Recorder, number: int) -> None:
        super().__init__(recorder, number)
        self._step = recorder.step
        self._row = 0

    def __enter__(self, _: object = None) -> None:
        """Begin a span."""
        if self._begun is not None:
            self._inner += 1
            return
        recorder = self._recorder
        try:
            step = recorder.step
            if step != self._step:
                self._row = self._row + 1 if step == self._step + 1 else 0
                self._step = step
            gpu = recorder.gpu
            if gpu is None:
                self._begun = _now()
            elif self._row < _STEPS_IN_A_ROW:
                self._begun = gpu.begin()
            else:
                self._begun = gpu.begin_sampled()
        except Exception:
            recorder.dropped += 1

    def __exit__(self, *_: object) -> None:
        """End it; exceptions pass."""
        if self._inner:
            self._inner -= 1
            return
        begun, self._begun = self._begun, None
        if begun is not None:
            self._recorder.end(self.number, begun)


class SharedSegment:
    """Times one ``with`` statement as a segment that others time as well.

    Parameters
    ----------
    recorder
        Takes the span.
    number
        The segment's.
    """

    __slots__ = ("_begun", "_number", "_recorder")

    def __init__(self, recorder: Recorder, number: int) -> None:
        self._recorder = recorder
        self._number = number
        self._begun: Any = None

    def __enter__(self) -> None:
        """Begin a span."""
        self._begun = self._recorder.begin(self._number)

    def __exit__(self, *error: object) -> None:
        """End it; exceptions pass."""
        begun, self._begun = self._begun, None
        if begun is not None:
            self._recorder.end(self._number, begun)


NOTHING = Nothing()


def segment_of_thread(recorder: Recorder, name: str) -> AbstractContextManager[None]:
    """Return what times a segment in the calling thread; nothing is timed if there is no room.

    Parameters
    ----------
    recorder
        Takes the spans.
    name
        The segment's.
    """
    try:
        number = recorder.names.segment(name)
        if number is None:
            return NOTHING
        local = recorder.local
        # Others time torch's own segments, and threads beyond the limit share a tally.
        if number < len(SEGMENTS) or not local.is_own:
            return SharedSegment(recorder, number)
        made = (OwnSegment if recorder.gpu is None else OwnGpuSegment)(recorder, number)
        local.tally.own.append(made)
        local.segments[name] = made
        return made
    except Exception:
        recorder.dropped += 1
        return NOTHING
