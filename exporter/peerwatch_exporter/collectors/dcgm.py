"""Activity of GPUs' units from DCGM's profiling fields: A100, and GPUs that are split (MIG)."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.sources.dcgm.fields import PCIE_RATES, PIPES, RATIOS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

# Values are said for this long after DCGM gave them: five of its readings, one a second.
_STANDS_SECONDS = 5.0
# The metrics of collector gpm: the same things, counted by another part of the driver.
_METRICS = {
    **{
        field: f"gpu_{name}_ratio" if name == "sm_occupancy" else f"gpu_{name}_active_ratio"
        for name, field in RATIOS.items()
    },
    **{field: f"gpu_pcie_{direction}_bytes_per_second" for direction, field in PCIE_RATES.items()},
}
_PIPE_NAMES = {field: pipe for pipe, field in PIPES.items()}


@register(
    "dcgm",
    "GPU tensor, SM, memory and pipe activity from a DCGM host engine (A100, MIG)",
    topic="GPU activity",
    metrics=(),
    is_configured=lambda config: config.dcgm.enabled,
)
class DcgmCollector:
    """Publishes what a process that asks DCGM last heard."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        # A node without DCGM need not load it.
        from peerwatch_exporter.sources.dcgm.process import DcgmProcess  # noqa: PLC0415

        self._gpus = sources.gpus
        self._monotonic = sources.monotonic
        self._process = DcgmProcess(config.dcgm.address, config.dcgm.bindings, sources)
        # Also when the collector is switched off while the exporter runs.
        self._finalizer = weakref.finalize(self, self._process.leave)

    def collect(self) -> Iterator[Family]:
        """Yield the activity families.

        Raises
        ------
        NoData
            Before the driver named a GPU, or while DCGM was not heard in the last seconds.
        DcgmSessionError
            If DCGM cannot be read.
        """
        boards = {board.uuid: board.index for board in self._gpus.boards() if board.uuid}
        if not boards:
            raise NoData("The driver names no GPU.")
        self._process.start()
        reading = self._process.read()
        if reading.problem is not None:
            raise reading.problem
        if reading.at is None or self._monotonic() - reading.at > _STANDS_SECONDS:
            raise NoData("DCGM was not heard of late.")
        yield from _families(reading.values, boards)

    def close(self) -> None:
        """End the process that asks DCGM."""
        self._finalizer.detach()
        self._process.stop()


def _families(
    values: Mapping[str, Mapping[int, float]], boards: Mapping[str, int]
) -> Iterator[Family]:
    supported = family("exporter_source_supported")
    pipes = family("gpu_pipe_active_ratio")
    families = {field: family(name) for field, name in _METRICS.items()}
    for uuid, index in sorted(boards.items(), key=lambda item: item[1]):
        found = values.get(uuid, {})
        labels = (str(index), uuid)
        supported.add_metric(("dcgm", labels[0]), bool(found))
        for field, value in found.items():
            is_ratio = field not in PCIE_RATES.values()
            said = min(value, 1.0) if is_ratio else value
            if field in _PIPE_NAMES:
                pipes.add_metric((*labels, _PIPE_NAMES[field]), said)
            elif field in families:
                families[field].add_metric(labels, said)
    yield from (supported, *families.values(), pipes)
