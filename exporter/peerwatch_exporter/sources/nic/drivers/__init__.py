"""What each NIC driver counts, one data file a driver; a new file here is read like the others.

The tables are joined: a name means the same in every driver that has it, so that an interface
needs no look at its driver, and a bond or a driver's successor is read as well.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.nic.driver_table import NicDriver, Statistic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class DriverTableError(Exception):
    """Two drivers give one name different meanings."""


def joined(drivers: Iterable[NicDriver]) -> Mapping[str, Statistic]:
    """Return what each name of ``ethtool -S`` means.

    Raises
    ------
    DriverTableError
        If a name means two things.
    """
    table: dict[str, Statistic] = {}
    for driver in drivers:
        for name, statistic in driver.expanded().items():
            if table.setdefault(name, statistic) != statistic:
                raise DriverTableError(
                    f"{name!r} of {driver.name} is {statistic}, but {table[name]} elsewhere."
                )
    return table


def rdma_files(metric: str) -> tuple[str, ...]:
    """Return the files, below a port, that may hold a metric, each once."""
    found = (driver.rdma[metric] for driver in DRIVERS if metric in driver.rdma)
    return tuple(dict.fromkeys(f"hw_counters/{name}" for name in found))


def _drivers() -> Iterable[NicDriver]:
    for module in sorted(item.name for item in pkgutil.iter_modules(__path__)):
        yield importlib.import_module(f"{__name__}.{module}").DRIVER


DRIVERS: tuple[NicDriver, ...] = tuple(_drivers())
STATISTICS: Mapping[str, Statistic] = joined(DRIVERS)
RDMA_ERRORS: tuple[str, ...] = tuple(
    dict.fromkeys(name for driver in DRIVERS for name in driver.rdma_errors)
)
