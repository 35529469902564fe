"""The sampler's loop: wait, read what is due, store it, and once a second report on it."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from peerwatch_exporter.sampler.groups import groups_of, sampled_ports
from peerwatch_exporter.sampler.interval_controller import NANOSECONDS
from peerwatch_exporter.sampler.layout import RingLayout
from peerwatch_exporter.sampler.ring import RingWriter
from peerwatch_exporter.sampler.steps import Steps, lengths, since, steps
from peerwatch_exporter.sampler.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from peerwatch_exporter.sampler.groups import CounterReader
    from peerwatch_exporter.sampler.interval_controller import IntervalController
    from peerwatch_exporter.sampler.layout import SampledGroup, SampledSeries
    from peerwatch_exporter.sampler.settings import SamplerSettings
    from peerwatch_exporter.sources.host.sysfs import Sysfs
    from peerwatch_exporter.sources.nic.rdma import RdmaPorts

# Statistics are worked out between samples: not closer to the next one than this part of an
# interval, but at least one series per sample.
_KEEP_FREE = 0.5
# A window may hold a little more than its share: seconds are never exact, but to some percent.
_ROOM = 1.05


class PortsChangedError(Exception):
    """The node has ports that the layout has no place for: start anew."""


class _Channel:
    """One group with its ring, its turn and the statistics of its series."""

    def __init__(
        self, reader: CounterReader, ring: RingWriter, due: int, settings: SamplerSettings
    ) -> None:
        self.reader = reader
        self.ring = ring
        self.due = due
        self.first = self.last = 0
        samples = math.ceil(_ROOM * settings.window_seconds / reader.group.interval_seconds) + 2
        self.windows = [Window(settings.window_seconds, samples) for _ in reader.group.series]

    def turn(self, now: int, tick_seconds: float) -> bool:
        """Return whether it is to be read now; if so, its next turn is fixed."""
        if now < self.due:
            return False
        period = int(max(tick_seconds, self.reader.interval_seconds) * NANOSECONDS)
        self.due += ((now - self.due) // period + 1) * period
        return True


class SamplerLoop:
    """Samples until it is stopped.

    Parameters
    ----------
    settings
        The settings of the process.
    sysfs, ports
        Where new ports are searched.
    layout
        The rings.
    readers
        How each group is read, in the layout's order.
    memory
        The shared memory, as large as the layout says.
    controller
        The clock.
    send
        Takes a message for the main process, once a second and when the layout changes.
    """

    def __init__(
        self,
        settings: SamplerSettings,
        sysfs: Sysfs,
        ports: RdmaPorts,
        layout: RingLayout,
        readers: Sequence[CounterReader],
        memory: memoryview,
        controller: IntervalController,
        send: Callable[[dict[str, Any]], None],
    ) -> None:
        self._settings = settings
        self._sysfs = sysfs
        self._ports = ports
        self._layout = layout
        self._controller = controller
        self._send = send
        begin = controller.deadline
        self._channels = [
            _Channel(reader, RingWriter(memory, group), begin, settings)
            for reader, group in zip(readers, layout.groups, strict=True)
        ]
        self._stagger()
        self._second_ends = begin + NANOSECONDS
        self._check_at = begin + int(settings.retry_seconds * NANOSECONDS)
        self._begins: deque[int] = deque([begin], maxlen=settings.window_seconds + 1)
        self._work: Iterator[None] = iter(())
        self._busy = False
        self._written: list[RingWriter] = []
        self._set_thresholds()
        for channel in self._channels:
            channel.reader.refresh(begin / NANOSECONDS)
        send({"layout": layout.to_data()})

    def tick(self) -> None:
        """Take one sample of everything that is due.

        Raises
        ------
        PortsChangedError
            If there are new ports.
        """
        now = self._controller.wait()
        for ring in self._written:
            ring.publish()
        self._written.clear()
        for channel in self._channels:
            if channel.turn(now, self._controller.interval_seconds):
                channel.ring.write(now, channel.reader.read(now / NANOSECONDS))
                self._written.append(channel.ring)
                now = max(now + 1, self._controller.now())
        if now >= self._second_ends and not self._busy:
            self._end_second(now)
        self._digest_some()

    def _stagger(self) -> None:
        # All slow groups in one sample would make it late, every time.
        slow = [channel for channel in self._channels if self._is_slow(channel)]
        for number, channel in enumerate(slow):
            period = channel.reader.interval_seconds * NANOSECONDS
            channel.due += int(period * number / len(slow))

    def _is_slow(self, channel: _Channel) -> bool:
        return channel.reader.interval_seconds > self._settings.interval_seconds

    def _end_second(self, now: int) -> None:
        self._second_ends = now + NANOSECONDS
        self._begins.append(now)
        self._controller.assess(now)
        if now >= self._check_at:
            self._check_at = now + int(self._settings.retry_seconds * NANOSECONDS)
            self._check_ports()
        for channel in self._channels:
            # From the last sample of the second before: the first step begins there.
            channel.first, channel.last = max(0, channel.last - 1), channel.ring.written
            channel.reader.refresh(now / NANOSECONDS)
        self._busy = True
        self._work = self._digest()

    def _digest_some(self) -> None:
        if not self._busy:
            return
        keep_free = _KEEP_FREE * self._controller.interval_seconds
        while True:
            try:
                next(self._work)
            except StopIteration:
                self._busy = False
                return
            if self._controller.spare_seconds < keep_free:
                return

    def _digest(self) -> Iterator[None]:
        """Work out the second that has ended, a series at a time, and send what came of it."""
        statistics = []
        intervals = []
        for channel, group in zip(self._channels, self._layout.groups, strict=True):
            times = channel.ring.column(0, channel.first, channel.last)
            seconds = lengths(times)
            intervals.append(sum(seconds) / len(seconds) if seconds else 0.0)
            for number, window in enumerate(channel.windows):
                window.add(_second(channel, number, times, seconds, group.series[number].line_rate))
                found = window.statistics()
                statistics.append(None if found is None else list(found))
                yield
        controller = self._controller
        self._send(
            {
                "begin": self._begins[0],
                "end": self._begins[-1],
                "interval": controller.achieved_seconds,
                "stretched": controller.is_stretched,
                "cpu": controller.cpu_ratio,
                "samples": controller.samples,
                "late": controller.late,
                "missing": sum(channel.reader.missing for channel in self._channels),
                "intervals": intervals,
                "statistics": statistics,
            }
        )

    def _check_ports(self) -> None:
        ports = sampled_ports(self._ports, self._settings.devices)
        found = _by_name(groups_of(self._sysfs, ports, self._settings))
        known = _by_name(self._layout.groups)
        if found.keys() - known.keys():
            raise PortsChangedError
        if any(known[key].line_rate != series.line_rate for key, series in found.items()):
            self._layout = RingLayout(
                tuple(
                    replace(
                        group,
                        series=tuple(found.get(_name(s), s) for s in group.series),
                    )
                    for group in self._layout.groups
                )
            )
            self._set_thresholds()
            self._send({"layout": self._layout.to_data()})

    def _set_thresholds(self) -> None:
        for channel, group in zip(self._channels, self._layout.groups, strict=True):
            for window, series in zip(channel.windows, group.series, strict=True):
                rate = series.line_rate
                window.threshold = None if rate is None else rate * self._settings.line_rate_ratio


def _name(series: SampledSeries) -> tuple[str, str, str]:
    return series.counter.name, series.device, series.port


def _by_name(groups: Iterable[SampledGroup]) -> dict[tuple[str, str, str], SampledSeries]:
    return {_name(series): series for group in groups for series in group.series}


def _second(
    channel: _Channel,
    number: int,
    times: Sequence[int],
    seconds: Sequence[float],
    line_rate: float | None,
) -> Steps:
    """Return the steps of one series in the second that has ended."""
    factor = channel.reader.group.series[number].counter.factor
    values = channel.ring.column(1 + number, channel.first, channel.last)
    result = steps(times, seconds, values, factor=factor, line_rate=line_rate)
    if not result.spread or channel.first == 0:
        return result
    # What was spread out may reach back into the second before.
    before = max(0, channel.first - len(times))
    times_more = channel.ring.column(0, before, channel.last)
    values = channel.ring.column(1 + number, before, channel.last)
    more = steps(times_more, lengths(times_more), values, factor=factor, line_rate=line_rate)
    return since(more, times[0])
