"""Which NVML fields tell of the NVLinks: two generations of counters behind one set of names.

Hopper and older answer the fields 138-163, Blackwell answers 201-221 and no longer 161-163.
What a GPU answers is learnt once and then kept: a counter that changed its source between two
scrapes would look like a reset.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from peerwatch_exporter.sources.readings import LinkReading, NvlinkReading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LINK_COUNT = 91
_SPEED = 164
_STATE = 165
# Scope of the sum over all links (UINT_MAX in nvml.h).
_ALL_LINKS = 0xFFFFFFFF
_MAX_LINKS = 36

# Field ids by error type, in the order of preference.
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
    "recovery_failed": (214,),
    "effective": (219,),
    "symbol": (221,),
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


class GpuFields(Protocol):
    """What is asked of a GPU here."""

    def call(self, function: str, *arguments: object) -> Any:  # noqa: ANN401
        """Call a pynvml function of this GPU; None if it is lacking."""

    def fields(self, wanted: Sequence[tuple[int, int]]) -> dict[tuple[int, int], float]:
        """Return those of the wanted (field id, scope) that the GPU answers."""


@dataclass(slots=True)
class LinkSupport:
    """What one GPU was found to answer, and the last counter of every link.

    A link that is down stops answering; its last value stays in the sum, which would otherwise
    fall and look like a counter that started again.
    """

    links: int
    errors: Mapping[str, int] | None = None
    bytes_source: ByteSource | None = None
    last: dict[tuple[int, int], float] = field(default_factory=dict)


def read_nvlink(
    gpu: GpuFields, support: LinkSupport | None
) -> tuple[NvlinkReading | None, LinkSupport]:
    """Return the links of a GPU (None if it has none) and what was learnt about it."""
    if support is None:
        support = LinkSupport(_count_links(gpu))
    if not support.links:
        return None, support
    links = range(support.links)
    error_fields = _wanted_errors(support)
    values = gpu.fields(
        [(number, link) for link in links for number in (_STATE, _SPEED, *error_fields)]
    )
    readings = tuple(_link(gpu, link, values, support) for link in links)
    transmit, receive = _bytes(gpu, support)
    return NvlinkReading(transmit, receive, readings), support


def _count_links(gpu: GpuFields) -> int:
    count = gpu.fields([(_LINK_COUNT, 0)]).get((_LINK_COUNT, 0))
    if count is not None:
        return min(int(count), _MAX_LINKS)
    link = 0
    while link < _MAX_LINKS and gpu.call("nvmlDeviceGetNvLinkState", link) is not None:
        link += 1
    return link


def _wanted_errors(support: LinkSupport) -> Sequence[int]:
    if support.errors is not None:
        return tuple(support.errors.values())
    return tuple(number for numbers in _ERROR_FIELDS.values() for number in numbers)


def _link(
    gpu: GpuFields, link: int, values: Mapping[tuple[int, int], float], support: LinkSupport
) -> LinkReading:
    state = values.get((_STATE, link))
    if state is None:
        state = gpu.call("nvmlDeviceGetNvLinkState", link)
    # Only a link that is up shows which counters this generation has.
    if support.errors is None and state:
        support.errors = {
            kind: number
            for kind, numbers in _ERROR_FIELDS.items()
            if (number := next((n for n in numbers if (n, link) in values), None)) is not None
        }
    speed = values.get((_SPEED, link))
    return LinkReading(
        link=link,
        up=None if state is None else bool(state),
        speed_bytes_per_second=None if speed is None else speed * 1e6,
        errors={
            kind: values[number, link]
            for kind, number in (support.errors or {}).items()
            if (number, link) in values
        },
    )


def _bytes(gpu: GpuFields, support: LinkSupport) -> tuple[float | None, float | None]:
    """Return payload bytes sent and received, from the first source that gives both."""
    sources = _BYTE_SOURCES if support.bytes_source is None else (support.bytes_source,)
    for source in sources:
        scopes = (_ALL_LINKS,) if source.summed else range(support.links)
        values = gpu.fields(
            [(number, scope) for scope in scopes for number in (source.transmit, source.receive)]
        )
        answered = {number for number, _ in values}
        if answered < {source.transmit, source.receive}:
            continue
        support.bytes_source = source
        support.last.update(values)
        transmit, receive = (
            source.unit_bytes
            * sum(value for (number, _), value in support.last.items() if number == wanted)
            for wanted in (source.transmit, source.receive)
        )
        return transmit, receive
    return None, None
