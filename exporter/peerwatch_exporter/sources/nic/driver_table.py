"""What the statistics of a NIC's driver mean: the vocabulary of the tables in ``drivers``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# Of Ethernet (IEEE 802.1Q) and so of every driver.
PRIORITIES = range(8)
# Where a name in a table has this, it stands for one name per priority.
PRIORITY = "{priority}"
MICROSECONDS = 1_000_000
BITS = 8


@dataclass(frozen=True, slots=True)
class Statistic:
    """What one statistic becomes.

    Parameters
    ----------
    metric
        The metric's name.
    labels
        Its label values after device and port; ``PRIORITY`` stands for the number.
    divisor
        How many of the driver's units are one of the metric's.
    """

    metric: str
    labels: tuple[str, ...] = ()
    divisor: int = 1


@dataclass(frozen=True, slots=True)
class NicDriver:
    """What one family of NICs counts, under the names of its kernel drivers.

    Parameters
    ----------
    name
        The driver of the network interface, as ``ethtool -i`` prints it.
    sources
        Files of the Linux kernel (or of the NIC's firmware) that spell the names.
    statistics
        By name in ``ethtool -S``, or by template with ``PRIORITY``. An allow-list: drivers have
        thousands more, and each is a series.
    rdma
        Files below ``hw_counters`` by the metric that they are published as.
    rdma_errors
        Files below ``hw_counters`` that count errors and retries of RDMA.
    """

    name: str
    sources: tuple[str, ...]
    statistics: Mapping[str, Statistic] = field(default_factory=dict)
    rdma: Mapping[str, str] = field(default_factory=dict)
    rdma_errors: tuple[str, ...] = ()

    def expanded(self) -> Mapping[str, Statistic]:
        """Return the statistics with a name of its own for each priority."""
        table = {}
        for name, statistic in self.statistics.items():
            for number in PRIORITIES if PRIORITY in name else (0,):
                labels = tuple(label.replace(PRIORITY, str(number)) for label in statistic.labels)
                table[name.replace(PRIORITY, str(number))] = Statistic(
                    statistic.metric, labels, statistic.divisor
                )
        return table


def pfc_frames(direction: str) -> Statistic:
    """Return pause frames of one priority."""
    return Statistic("nic_pfc_pause_frames_total", (direction, PRIORITY))


def pfc_microseconds(direction: str) -> Statistic:
    """Return the time for which one priority stood still, counted in microseconds."""
    return Statistic("nic_pfc_pause_seconds_total", (direction, PRIORITY), MICROSECONDS)


def pfc_transitions(direction: str) -> Statistic:
    """Return how often one priority was let go again."""
    return Statistic("nic_pfc_pause_transitions_total", (direction, PRIORITY))


def link_frames(direction: str) -> Statistic:
    """Return pause frames of the whole link."""
    return Statistic("nic_global_pause_frames_total", (direction,))


def link_microseconds(direction: str) -> Statistic:
    """Return the time for which the whole link stood still, counted in microseconds."""
    return Statistic("nic_global_pause_seconds_total", (direction,), MICROSECONDS)


def link_transitions(direction: str) -> Statistic:
    """Return how often the whole link was let go again."""
    return Statistic("nic_global_pause_transitions_total", (direction,))
