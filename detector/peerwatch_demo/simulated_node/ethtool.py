"""Statistics of the fake node's network drivers, under the names of mlx5."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from peerwatch_demo.simulated_node.nics import Nic


class SimulatedEthtool:
    """Answers for the interfaces of the node's NICs.

    Parameters
    ----------
    nics
        The NIC behind each interface.
    elapsed
        Seconds since the demonstration's start.
    """

    def __init__(self, nics: Mapping[str, Nic], elapsed: Callable[[], float]) -> None:
        self._nics = nics
        self._elapsed = elapsed

    def names(self, interface: str) -> Sequence[str]:
        """Return the names of the interface's statistics.

        Raises
        ------
        OSError
            ENODEV if there is no such interface.
        """
        return list(self._statistics(interface))

    def values(self, interface: str) -> Sequence[int]:
        """Return their values.

        Raises
        ------
        OSError
            ENODEV if there is no such interface.
        """
        return list(self._statistics(interface).values())

    def _statistics(self, interface: str) -> Mapping[str, int]:
        nic = self._nics.get(interface)
        if nic is None:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), interface)
        return nic.statistics(self._elapsed())
