"""Which counters of an RDMA port can be sampled, and what each becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

# Where a counter is read, which says how fast it can change and what that costs: a file below
# counters/; one below hw_counters/, which the kernel keeps for a "lifespan"; all statistics of the
# network driver.
CounterSource = Literal["counters", "hw_counters", "ethtool"]
SampledCounter = Literal[
    "transmit_bytes",
    "receive_bytes",
    "transmit_packets",
    "receive_packets",
    "cnp_sent",
    "cnp_handled",
    "ecn_marked_packets",
    "transmit_pause_frames",
    "receive_pause_frames",
]


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter that every port may have.

    Parameters
    ----------
    name
        What it is called in the settings and in the label ``counter``.
    family
        The metric its rates are published as.
    direction
        ``transmit`` or ``receive`` where the metric has that label, else empty.
    unit
        Unit of the rate.
    source
        Where it is read, and so how often it is worth reading.
    file
        Its name there; for ``ethtool``, ``rx`` or ``tx``.
    factor
        What one count stands for, in the unit.
    link
        Direction of the link whose speed bounds the rate; empty if none does.
    """

    name: SampledCounter
    family: str
    direction: str
    unit: str
    source: CounterSource
    file: str
    factor: int = 1
    link: str = ""

    @property
    def is_event(self) -> bool:
        """Whether any rise matters, however small; of bytes and packets there are always some."""
        return self.source != "counters"


_BYTES, _PACKETS = "bytes per second", "packets per second"
_CNP = "nic_burst_cnp_packets_per_second"
_PAUSE = "nic_burst_pfc_pause_frames_per_second"

COUNTERS: Mapping[str, Counter] = {
    counter.name: counter
    for counter in (
        # InfiniBand counts data in 32-bit words, on every link layer.
        Counter(
            "transmit_bytes",
            "nic_burst_transmit_bytes_per_second",
            "",
            _BYTES,
            "counters",
            "port_xmit_data",
            factor=4,
            link="transmit",
        ),
        Counter(
            "receive_bytes",
            "nic_burst_receive_bytes_per_second",
            "",
            _BYTES,
            "counters",
            "port_rcv_data",
            factor=4,
            link="receive",
        ),
        Counter(
            "transmit_packets",
            "nic_burst_transmit_packets_per_second",
            "",
            _PACKETS,
            "counters",
            "port_xmit_packets",
        ),
        Counter(
            "receive_packets",
            "nic_burst_receive_packets_per_second",
            "",
            _PACKETS,
            "counters",
            "port_rcv_packets",
        ),
        Counter("cnp_sent", _CNP, "transmit", _PACKETS, "hw_counters", "np_cnp_sent"),
        Counter("cnp_handled", _CNP, "receive", _PACKETS, "hw_counters", "rp_cnp_handled"),
        Counter(
            "ecn_marked_packets",
            "nic_burst_ecn_marked_packets_per_second",
            "",
            _PACKETS,
            "hw_counters",
            "np_ecn_marked_roce_packets",
        ),
        Counter("transmit_pause_frames", _PAUSE, "transmit", "frames per second", "ethtool", "tx"),
        Counter("receive_pause_frames", _PAUSE, "receive", "frames per second", "ethtool", "rx"),
    )
}
