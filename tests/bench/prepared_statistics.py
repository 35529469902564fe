"""Driver statistics that are made beforehand, so that only the reader's own work is measured.

The values are small numbers, of which Python has one each: neither does what is made up here count
as memory of the exporter that reads it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from peerwatch_exporter.sources.nic.drivers.mlx5 import DRIVER

# Of a node with 8 GPUs, one for each.
NICS = 8


class PreparedStatistics:
    """Statistics of some interfaces, the known ones among many others.

    Parameters
    ----------
    interfaces
        How many: eth0, eth1 and so on.
    entries
        How many statistics each has.
    """

    def __init__(self, interfaces: int, entries: int = 1000) -> None:
        wanted = list(DRIVER.expanded())
        names = [f"rx{number // 10}_counter_{number % 10}" for number in range(entries)]
        self._names = names[: entries - len(wanted)] + wanted
        self._values = {
            f"eth{nic}": [(7 * at + nic) % 251 for at in range(entries)]
            for nic in range(interfaces)
        }

    def names(self, interface: str) -> Sequence[str]:
        """Return the names of the interface's statistics."""
        self.values(interface)
        return self._names

    def values(self, interface: str) -> Sequence[int]:
        """Return their values."""
        if interface not in self._values:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), interface)
        return self._values[interface]
