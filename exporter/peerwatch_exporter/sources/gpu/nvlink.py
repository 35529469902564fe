"""Which NVML fields describe the NVLinks: two generations of counters behind one set of names.

Hopper and older answer the fields 138-163, Blackwell answers 201-222 and no longer 161-163.
What a GPU answers is learnt once and then kept: a counter that changed its source between two
scrapes would appear as a reset.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from peerwatch_exporter.sources.gpu.readings import LinkReading, NvlinkBytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Field ids of nvml.h; raw counters are in KiB.
_LINK_COUNT = 91
_RAW_TRANSMIT, _RAW_RECEIVE = 140, 141
_RAW_UNIT_BYTES = 1024
_SPEED = 164
_STATE = 165
# Scope of the sum over all links (UINT_MAX in nvml.h).
_ALL_LINKS = 0xFFFFFFFF
# Twice the 18 of Hopper and Blackwell.
_MAX_LINKS = 36

# Field ids by name, in the order of preference.
_ERROR_FIELDS: dict[str, tuple[int, ...]] = {
    "replay": (161,),
    "recovery": (162, 215),
    "crc": (163,),
    "malformed": (206,),
    "overrun": (207,),
    "receive": (208,),
    "receive_remote": (209,),
    "receive_general": (210,),
    "integrity": (211,),
    "discard": (212,),
    "effective": (219,),
    "symbol": (221,),
}
_RECOVERY_FIELDS: dict[str, tuple[int, ...]] = {"successful": (213,), "failed": (214,)}
_RATIO_FIELDS: dict[str, tuple[int, ...]] = {"effective": (220,), "symbol": (222,)}
_FEC_FIELDS: dict[str, tuple[int, ...]] = {str(n): (235 + n,) for n in range(16)}
_GROUPS = {
    "errors": _ERROR_FIELDS,
    "recoveries": _RECOVERY_FIELDS,
    "error_ratios": _RATIO_FIELDS,
    "fec_symbols": _FEC_FIELDS,
}


@dataclass(frozen=True, slots=True)
class ByteSource:
    """One way to the payload bytes: transmit and receive field, bytes per unit, sum or per link."""

    transmit: int
    receive: int
    unit_bytes: int
    summed: bool


_BYTE_SOURCES = (
    ByteSource(138, 139, 1024, summed=True),
    ByteSource(202, 204, 1, summed=False),
    ByteSource(138, 139, 1024, summed=False),
)
_NO_BYTES = NvlinkBytes(None, None, None, None)


class GpuFields(Protocol):
    """What is asked of a GPU here."""

    def call(self, function: str, *arguments: object) -> Any:  # noqa: ANN401
        """Call a pynvml function of this GPU; None if it is lacking."""

    def fields(self, requested: Sequence[tuple[int, int]]) -> dict[tuple[int, int], float]:
        """Return those of the wanted (field id, scope) that the GPU answers."""


@dataclass(slots=True)
class NvlinkReader:
    """Reads the NVLinks of one GPU, and learns what it answers.

    A link that is down stops answering; its last value stays in the sum, which would otherwise
    fall and appear as a counter that started again.

    Parameters
    ----------
    gpu
        The GPU as the driver lists it.
    with_fec
        Also read the history of what forward error correction repaired.
    """

    gpu: GpuFields
    with_fec: bool = False
    _links: int | None = None
    _known: Mapping[str, Mapping[str, int]] | None = None
    _source: ByteSource | None = None
    _has_raw: bool = True
    _requested: Sequence[tuple[int, int]] = ()
    _last: dict[tuple[int, int], float] = field(default_factory=dict)

    def links(self) -> int:
        """Return how many NVLinks the GPU has.

        Raises
        ------
        GpuLostError
            If the GPU is lost.
        """
        if self._links is None:
            self._links = _count_links(self.gpu)
        return self._links

    def read_bytes(self) -> NvlinkBytes:
        """Return the bytes over all links; all None if there is no link.

        Raises
        ------
        GpuLostError
            If the GPU is lost.
        """
        links = self.links()
        if not links:
            return _NO_BYTES
        for source in _BYTE_SOURCES if self._source is None else (self._source,):
            raw = self._has_raw and source.summed
            values = self.gpu.fields(_byte_fields(source, links, raw=raw))
            answered = {number for number, _ in values}
            if {source.transmit, source.receive} <= answered:
                self._source = source
                self._has_raw = {_RAW_TRANSMIT, _RAW_RECEIVE} <= answered
                self._last.update(values)
                return self._sums(source)
        return _NO_BYTES

    def _sums(self, source: ByteSource) -> NvlinkBytes:
        def total(requested: int, unit_bytes: int) -> float:
            last = self._last.items()
            return unit_bytes * sum(value for (number, _), value in last if number == requested)

        return NvlinkBytes(
            transmit=total(source.transmit, source.unit_bytes),
            receive=total(source.receive, source.unit_bytes),
            raw_transmit=total(_RAW_TRANSMIT, _RAW_UNIT_BYTES) if self._has_raw else None,
            raw_receive=total(_RAW_RECEIVE, _RAW_UNIT_BYTES) if self._has_raw else None,
        )

    def read_links(self) -> tuple[LinkReading, ...]:
        """Return the state of every link.

        Raises
        ------
        GpuLostError
            If the GPU is lost.
        """
        links = range(self.links())
        if not links:
            return ()
        if not self._requested or self._known is None:
            numbers = (_STATE, _SPEED, *self._numbers())
            self._requested = [(number, link) for link in links for number in numbers]
        values = self.gpu.fields(self._requested)
        return tuple(self._link(link, values) for link in links)

    def _numbers(self) -> list[int]:
        if self._known is not None:
            return [number for known in self._known.values() for number in known.values()]
        return [
            n for fields in self._groups().values() for numbers in fields.values() for n in numbers
        ]

    def _groups(self) -> Mapping[str, Mapping[str, tuple[int, ...]]]:
        return {name: _GROUPS[name] for name in _GROUPS if self.with_fec or name != "fec_symbols"}

    def _link(self, link: int, values: Mapping[tuple[int, int], float]) -> LinkReading:
        state = values.get((_STATE, link))
        if state is None:
            state = self.gpu.call("nvmlDeviceGetNvLinkState", link)
        # Only a link that is up shows which counters this generation has.
        if self._known is None and state:
            self._learn(link, values)
        speed = values.get((_SPEED, link))
        found = {
            group: {
                name: values[number, link]
                for name, number in known.items()
                if (number, link) in values
            }
            for group, known in (self._known or {}).items()
        }
        ratios = found.get("error_ratios", {})
        return LinkReading(
            link=link,
            up=None if state is None else bool(state),
            speed_bytes_per_second=None if speed is None else speed * 1e6,
            errors=found.get("errors", {}),
            recoveries=found.get("recoveries", {}),
            error_ratios={kind: error_ratio(int(value)) for kind, value in ratios.items()},
            fec_symbols=found.get("fec_symbols", {}),
        )

    def _learn(self, link: int, values: Mapping[tuple[int, int], float]) -> None:
        self._known = {
            group: {
                name: number
                for name, numbers in fields.items()
                if (number := next((n for n in numbers if (n, link) in values), None)) is not None
            }
            for group, fields in self._groups().items()
        }
        # The next reading asks for these alone.
        self._requested = ()


def error_ratio(packed: int) -> float:
    """Return a bit error ratio; bits 0-7 hold the exponent, 8-11 the mantissa.

    The value is mantissa * 10 ** -exponent.
    """
    return (packed >> 8 & 0xF) * 10.0 ** -(packed & 0xFF)


def _count_links(gpu: GpuFields) -> int:
    count = gpu.fields([(_LINK_COUNT, 0)]).get((_LINK_COUNT, 0))
    if count is not None:
        return min(int(count), _MAX_LINKS)
    link = 0
    while link < _MAX_LINKS and gpu.call("nvmlDeviceGetNvLinkState", link) is not None:
        link += 1
    return link


def _byte_fields(source: ByteSource, links: int, *, raw: bool) -> Sequence[tuple[int, int]]:
    if not source.summed:
        numbers = (source.transmit, source.receive)
        return [(number, link) for link in range(links) for number in numbers]
    numbers = (source.transmit, source.receive, *((_RAW_TRANSMIT, _RAW_RECEIVE) if raw else ()))
    return [(number, _ALL_LINKS) for number in numbers]
