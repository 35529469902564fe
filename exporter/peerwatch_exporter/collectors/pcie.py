"""PCIe links of GPUs (NVML) and of GPU and NIC functions (sysfs): bytes, width, errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import NoData, register
from peerwatch_exporter.sources.nvml import GpuLostError, shared_nvml
from peerwatch_exporter.sources.sysfs import Sysfs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_exporter.catalog import Family
    from peerwatch_exporter.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.nvml import Gpu
    from peerwatch_exporter.sources.readings import PcieReading

_DEVICES = "bus/pci/devices"
# PCI class codes: 0x02 network (Ethernet and InfiniBand), 0x03 display (GPUs of all kinds).
_CLASSES = ("0x02", "0x03")
_GPU_VALUES = {
    "gpu_pcie_link_generation": "generation",
    "gpu_pcie_link_generation_max": "generation_max",
    "gpu_pcie_link_width_lanes": "width_lanes",
    "gpu_pcie_link_width_lanes_max": "width_lanes_max",
    "gpu_pcie_replays_total": "replays",
}
# The kernel's "width unknown".
_UNKNOWN_WIDTH = 255


class UnwrappedCounter:
    """A counter that only rises, from a raw one that may wrap.

    NVML says that fields 197 and 198 "can be wrapped" and not at which width. Assumed: a raw
    value that falls wrapped at 32 bits if it was below 2**32 before, else at 64 bits. A wrap
    that would mean more than half of that range in one interval is taken for a counter that
    started again at 0, as after a reload of the driver.
    """

    def __init__(self) -> None:
        self._last: int | None = None
        self._total = 0

    def add(self, raw: int) -> int:
        """Take the next raw value; return the total, which starts at the first raw value."""
        last = self._last
        self._last = raw
        if last is None or raw >= last:
            self._total += raw - (last or 0)
            return self._total
        span = 2**32 if last < 2**32 else 2**64
        wrapped = raw + span - last
        self._total += wrapped if wrapped <= span // 2 else raw
        return self._total


@register("pcie", "PCIe bytes, link width and speed, replays and AER errors of GPUs and NICs.")
class PcieCollector:
    """Joins what the GPU says of its link with what the kernel says of GPU and NIC functions."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:  # noqa: ARG002
        self._nvml = shared_nvml(sources)
        self._sysfs = Sysfs(sources.paths.sysfs)
        self._counters: dict[tuple[str, str], UnwrappedCounter] = {}
        self._wanted: dict[str, bool] = {}

    def collect(self) -> Iterable[Family]:
        """Return the PCIe families; each of the two sources may be missing.

        Raises
        ------
        NoData
            If the node has neither a GPU with a driver nor a GPU or NIC function in sysfs.
        """
        functions = [name for name in self._sysfs.names(_DEVICES) if self._is_wanted(name)]
        try:
            readings = [(gpu, _read(gpu)) for gpu in self._nvml.gpus()]
        except NoData:
            if not functions:
                raise
            readings = []
        answered = [(gpu, reading) for gpu, reading in readings if reading is not None]
        return [*self._bytes(answered), *_gpu_links(answered), *self._functions(functions)]

    def _is_wanted(self, name: str) -> bool:
        """Return whether the function is a GPU or NIC; its class is read only once.

        Virtual functions share the link of their physical one.
        """
        known = self._wanted.get(name)
        if known is not None:
            return known
        path = f"{_DEVICES}/{name}"
        code = self._sysfs.text(f"{path}/class")
        if code is None:
            return False
        wanted = code.startswith(_CLASSES) and not self._sysfs.exists(f"{path}/physfn")
        self._wanted[name] = wanted
        return wanted

    def _bytes(self, readings: Iterable[tuple[Gpu, PcieReading]]) -> Iterable[Family]:
        families = {
            "transmit_bytes": family("gpu_pcie_transmit_bytes_total"),
            "receive_bytes": family("gpu_pcie_receive_bytes_total"),
        }
        for gpu, reading in readings:
            for direction, result in families.items():
                raw = getattr(reading, direction)
                if raw is not None:
                    key = (gpu.identity.uuid, direction)
                    counter = self._counters.setdefault(key, UnwrappedCounter())
                    result.add_metric(gpu.labels, counter.add(raw))
        return families.values()

    def _functions(self, names: Iterable[str]) -> Iterable[Family]:
        errors = family("pcie_aer_errors_total")
        speed = family("pcie_link_speed_transfers_per_second")
        width = family("pcie_link_width_lanes")
        for name in names:
            path = f"{_DEVICES}/{name}"
            for severity, kind, count in self._aer(path):
                errors.add_metric([name, severity, kind], count)
            transfers = self._sysfs.transfers_per_second(f"{path}/current_link_speed")
            if transfers is not None:
                speed.add_metric([name], transfers)
            lanes = self._sysfs.integer(f"{path}/current_link_width")
            if lanes is not None and lanes != _UNKNOWN_WIDTH:
                width.add_metric([name], lanes)
        return errors, speed, width

    def _aer(self, path: str) -> Iterable[tuple[str, str, int]]:
        correctable = self._sysfs.named_counters(f"{path}/aer_dev_correctable")
        for kind, count in correctable.items():
            # The kernel's own total would double every sum over the types.
            if not kind.startswith("TOTAL_ERR_"):
                yield "correctable", kind, count
        for severity in ("nonfatal", "fatal"):
            counters = self._sysfs.named_counters(f"{path}/aer_dev_{severity}")
            total = counters.get(f"TOTAL_ERR_{severity.upper()}")
            if total is not None:
                yield severity, "total", total


def _read(gpu: Gpu) -> PcieReading | None:
    try:
        return gpu.pcie()
    except GpuLostError:
        return None


def _gpu_links(readings: Iterable[tuple[Gpu, PcieReading]]) -> Iterable[Family]:
    families = {name: family(name) for name in _GPU_VALUES}
    for gpu, reading in readings:
        for name, attribute in _GPU_VALUES.items():
            value = getattr(reading, attribute)
            if value is not None:
                families[name].add_metric(gpu.labels, value)
    return families.values()
