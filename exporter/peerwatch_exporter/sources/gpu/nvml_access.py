"""What collectors need of NVML without importing it: its errors, and the way to it.

The main process registers the collectors that read GPUs and never runs them. pynvml costs several
MiB, so it is imported where the first of them is made: in the driver process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from peerwatch_exporter.errors import NoData

if TYPE_CHECKING:
    from peerwatch_exporter.sources.gpu.nvml import Nvml
    from peerwatch_exporter.sources.host.access import HostAccess


class NvmlError(Exception):
    """The driver's library fails as a whole, so that no GPU can be read."""

    error_class = "nvml_error"


class DriverAbsent(NoData):
    """No GPU can be read: the driver is not loaded, its library does not load, or it lists none.

    Parameters
    ----------
    message
        What the driver or the loader says.
    error_class
        ``nvml_driver_not_loaded``, ``nvml_library_not_found``, ``nvml_library_not_loadable`` or
        ``nvml_no_gpu_listed``: the error of a node that should have GPUs.
    """

    def __init__(self, message: str, error_class: str) -> None:
        super().__init__(message)
        self.error_class = error_class


class VersionMismatchError(NvmlError):
    """The library is not that of the loaded kernel module: the driver was updated, not reloaded."""

    error_class = "nvml_version_mismatch"


class LibraryNotLoadableError(NvmlError):
    """The library was found and lacks what every NVML library has."""

    error_class = "nvml_library_not_loadable"


class GpuLostError(NvmlError):
    """One GPU no longer answers; the others may."""

    error_class = "nvml_gpu_is_lost"


class GpuUnreadableError(GpuLostError):
    """Software keeps one GPU from being read; nothing says that the GPU itself is gone."""

    error_class = "nvml_gpu_unreadable"


class DriverReloadedError(NvmlError):
    """The driver was unloaded or exchanged; only a new process can use the one there is now."""

    error_class = "nvml_driver_reloaded"


class CallMarker(Protocol):
    """Is told before every call which GPU it is for."""

    def at(self, gpu: int) -> None:
        """Note the index of the GPU that is called next; -1 if the call concerns none."""


class NoMarker:
    """For a process that nobody watches."""

    def at(self, gpu: int) -> None:
        """Note nothing."""


def shared_nvml(host: HostAccess) -> Nvml:
    """Return the one library that all collectors of a host share.

    nvmlInit takes long on a node with many GPUs: one per process is enough.
    """
    nvml: Nvml | None = vars(host).get("_nvml")
    if nvml is None:
        from peerwatch_exporter.sources.gpu.nvml import Nvml  # noqa: PLC0415 - see above

        # Two threads may come at once, where collectors have one each.
        nvml = vars(host).setdefault("_nvml", Nvml(monotonic=host.monotonic))
    return nvml


def share_nvml(host: HostAccess, nvml: Nvml) -> None:
    """Let all collectors of a host use this library."""
    vars(host)["_nvml"] = nvml
