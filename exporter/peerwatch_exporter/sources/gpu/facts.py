"""What the driver process last reported about the GPUs, for collectors that must not call NVML.

The driver process answers once a second; collectors in the main process (XID, jobs, NIC) read
here which boards there are and which processes use them, and never wait for a driver.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from peerwatch_exporter.sources.gpu.identity import GpuIdentity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The driver samples power and utilisation up to some 100 times a second; of each it keeps far less.
# Series are two for each GPU: far fewer.
_MAX_SAMPLES = 8192
_MAX_SAMPLE_SERIES = 512
# The longest history that can be asked for (``sampler.history_seconds``).
_SAMPLE_SECONDS = 600.0

# gpu, uuid, metric; Unix times and values in the order of time. Plain, to go between processes.
SampleBatch = tuple[str, str, str, list[float], list[float]]

# Thirty times faster than dataclasses.astuple, and that for every board every second.
_FIELDS_OF_BOARD = attrgetter(*(field.name for field in fields(GpuIdentity)))

# XID events nobody took yet; a flood keeps the newest. Chosen: two for each pair that is counted.
_MAX_EVENTS = 1024


class XidEvent(NamedTuple):
    """One XID as NVML's events report it.

    Parameters
    ----------
    pci_bus_id
        Address of the GPU, as in ``GpuIdentity.pci_bus_id``.
    code
        The XID.
    timestamp
        When it was received (Unix time).
    """

    pci_bus_id: str
    code: int
    timestamp: float


class GpuFacts:
    """Boards, processes and events of the GPUs, as the driver process last reported them.

    Safe for any number of threads; every getter returns at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._boards: dict[str, GpuIdentity] = {}
        self._taken: Any = None
        self._processes: Mapping[int, tuple[int, ...]] = {}
        self._events: deque[XidEvent] = deque(maxlen=_MAX_EVENTS)
        self._samples: dict[tuple[str, str, str], deque[tuple[float, float]]] = {}
        self._sample_seconds = _SAMPLE_SECONDS

    def boards(self) -> tuple[GpuIdentity, ...]:
        """Return every board seen since the start, by index."""
        with self._lock:
            return tuple(sorted(self._boards.values(), key=lambda board: board.index))

    def processes(self) -> Mapping[int, tuple[int, ...]]:
        """Return the process ids that hold a compute context, by GPU index."""
        with self._lock:
            return dict(self._processes)

    def take_events(self) -> list[XidEvent]:
        """Return the XID events since the last call; each is given once."""
        with self._lock:
            events = list(self._events)
            self._events.clear()
            return events

    def update_boards(self, boards: Sequence[GpuIdentity]) -> None:
        """Add or renew boards; those not given stay, for a lost GPU has a name too."""
        with self._lock:
            self._boards.update((board.key, board) for board in boards)

    def update_processes(self, processes: Mapping[int, tuple[int, ...]]) -> None:
        """Replace the process ids of the GPUs given."""
        with self._lock:
            self._processes = {**self._processes, **processes}

    def drain(self) -> tuple[Any, ...]:
        """Return what is here as plain values, for the ``take_in`` of another process.

        Boards and processes stay; events and samples are given once.
        """
        events = [tuple(event) for event in self.take_events()]
        boards = [_FIELDS_OF_BOARD(board) for board in self.boards()]
        return boards, self.processes(), events, self.take_samples()

    def take_in(self, boards: Any, processes: Any, events: Any, samples: Any) -> None:  # noqa: ANN401
        """Add what ``drain`` returned elsewhere."""
        self.add_samples(samples)
        if boards != self._taken:
            self.update_boards([GpuIdentity(*board) for board in boards])
            self._taken = boards
        self.update_processes(processes)
        self.add_events([XidEvent(*event) for event in events])

    def add_events(self, events: Sequence[XidEvent]) -> None:
        """Add XID events in the order they came."""
        with self._lock:
            self._events.extend(events)

    def add_samples(self, batches: Sequence[SampleBatch]) -> None:
        """Add samples of the driver's own buffers; of each series the newest 8,192 stay at most."""
        with self._lock:
            for gpu, uuid, metric, times, values in batches:
                kept = self._samples.get((gpu, uuid, metric))
                if kept is None:
                    if len(self._samples) >= _MAX_SAMPLE_SERIES:
                        continue
                    kept = self._samples[gpu, uuid, metric] = deque(maxlen=_MAX_SAMPLES)
                kept.extend(zip(times, values, strict=True))
                while kept and kept[0][0] < kept[-1][0] - self._sample_seconds:
                    kept.popleft()

    def keep_samples(self, seconds: float) -> None:
        """Keep samples of so many seconds from now on."""
        with self._lock:
            self._sample_seconds = seconds

    def samples(self) -> dict[tuple[str, str, str], list[tuple[float, float]]]:
        """Return the samples kept, as (Unix time, value), by (gpu, uuid, metric)."""
        with self._lock:
            return {key: list(kept) for key, kept in self._samples.items()}

    def take_samples(self) -> list[SampleBatch]:
        """Return the samples since the last call and keep none: what is to be forwarded."""
        with self._lock:
            taken = [
                (*key, [time for time, _ in kept], [value for _, value in kept])
                for key, kept in self._samples.items()
                if kept
            ]
            self._samples.clear()
            return taken
