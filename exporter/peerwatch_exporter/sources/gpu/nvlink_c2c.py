"""NVLink-C2C: the links between a GPU and the Grace CPU beside it, from NVML's fields.

The counters of their errors (231-233) are left out: whether NVML gives them per link or per GPU is
not documented.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.gpu.readings import C2cLink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_exporter.sources.gpu.nvlink import GpuFields

# Field ids of nvml.h.
_COUNT, _STATE, _SPEED = 170, 171, 172
# GH200 and GB200 have ten.
_MAX_LINKS = 32


@dataclass(slots=True)
class C2cReader:
    """Reads the NVLink-C2C links of one GPU; whether it has any is asked once.

    Parameters
    ----------
    gpu
        The GPU as the driver lists it.
    """

    gpu: GpuFields
    _links: int | None = None

    def read(self) -> Sequence[C2cLink]:
        """Return the state of every link; none if the GPU has no CPU beside it.

        Raises
        ------
        GpuLostError
            If the GPU is lost.
        """
        if self._links is None:
            count = self.gpu.fields([(_COUNT, 0)]).get((_COUNT, 0), 0)
            self._links = min(int(count), _MAX_LINKS)
        links = range(self._links)
        if not links:
            return ()
        values = self.gpu.fields([(field, link) for link in links for field in (_STATE, _SPEED)])
        return [
            _link(link, values.get((_STATE, link)), values.get((_SPEED, link))) for link in links
        ]


def _link(link: int, state: float | None, speed: float | None) -> C2cLink:
    # In MB/s, and only while the link is active.
    return C2cLink(
        link=link,
        up=None if state is None else bool(state),
        speed_bytes_per_second=None if speed is None else speed * 1e6,
    )
