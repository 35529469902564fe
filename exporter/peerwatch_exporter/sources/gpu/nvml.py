"""NVML, the GPU driver's own library: only this module and its nvml_* siblings import pynvml.

NVML's errors end here. A value that the board, the driver or the permissions do not give is
None; a lost GPU raises ``GpuLostError`` for that GPU alone, one that cannot be opened
``GpuUnreadableError``; a driver that is not there is ``NoData``, one that was exchanged under our
feet ``DriverReloadedError``. A function that the driver's library or the Python binding lacks, or
that fails in the binding itself, costs its own value and nothing else.

Any call here may never return, so all of this runs in the driver process, and every call
marks first in shared memory which GPU it is for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NoReturn

import pynvml

from peerwatch_exporter.errors import error_class
from peerwatch_exporter.sources.gpu.identity import GpuIdentity
from peerwatch_exporter.sources.gpu.nvml_access import (
    CallMarker,
    DriverAbsent,
    DriverReloadedError,
    GpuLostError,
    LibraryNotLoadableError,
    NoMarker,
    NvmlError,
    VersionMismatchError,
)
from peerwatch_exporter.sources.gpu.nvml_field_values import field_values
from peerwatch_exporter.sources.gpu.nvml_fields import (
    error_names,
)
from peerwatch_exporter.sources.gpu.nvml_gpu import UNSUPPORTED, Gpu
from peerwatch_exporter.sources.host.sysfs import pci_address

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


_LOG = logging.getLogger(__name__)

# The loader's text where there is no such file; any other means that there is one, and it is bad.
_NO_LIBRARY = "libnvidia-ml.so.1: cannot open shared object file: No such file"
_INITIALISATION_ERRORS = {
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: VersionMismatchError,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: LibraryNotLoadableError,
}
# What a driver answers that is not the one the library was initialised with.
_RELOADED = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
# Why a GPU cannot be opened though nothing speaks against the GPU: a function is missing, a cgroup
# forbids the device. Anything else is taken for a GPU that does not answer; a broken one often
# gives no more than "unknown".
_SOFTWARE = frozenset(
    {
        "argument_version_mismatch",
        "function_not_found",
        "in_use",
        "insufficient_resources",
        "invalid_argument",
        "memory",
        "no_permission",
        "not_supported",
        "operating_system",
    }
)
# What pynvml raises in place of "function not found" for a function that has versions.
_MISMATCH = getattr(pynvml, "NVMLLibraryMismatchError", ())
# In place of pynvml's, which take too long for what is called many times a second.
_OWN_WRAPPERS: Mapping[str, Callable[..., object]] = {"nvmlDeviceGetFieldValues": field_values}
# What drivers before R510 have in place of a function.
_OLDER_FUNCTIONS = {
    "nvmlDeviceGetComputeRunningProcesses": "nvmlDeviceGetComputeRunningProcesses_v2",
}


class Nvml:
    """The library and its GPUs: initialised once, for one driver.

    Parameters
    ----------
    marker
        Where every call says which GPU it is for.
    only
        Index of the one GPU that may be touched; None: all but those excluded.
    excluded
        Indexes of GPUs that must not be touched, not even listed.
    monotonic
        Clock for the age of what is not read every time.
    """

    def __init__(
        self,
        marker: CallMarker | None = None,
        *,
        only: int | None = None,
        excluded: Collection[int] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.marker: CallMarker = marker or NoMarker()
        self.monotonic = monotonic
        self._only = only
        self._excluded = frozenset(excluded)
        self._lock = threading.Lock()
        self._initialised = False
        self._count = 0
        self._driver = ""
        self._gpus: tuple[Gpu, ...] = ()
        self._is_listed = False
        self._seen: dict[str, GpuIdentity] = {}
        self._errors: Counter[str] = Counter()
        self._last_code: str | None = None
        self._binding_faults: set[str] = set()
        self._error_names = error_names()

    @property
    def driver_version(self) -> str:
        """Version of the driver, empty before the first GPU was listed."""
        return self._driver

    @property
    def count(self) -> int:
        """How many GPUs the driver listed last, those that may not be touched included."""
        return self._count

    def exclude(self, indexes: Collection[int]) -> None:
        """Let all GPUs but these be touched from now on."""
        self._excluded = frozenset(indexes)
        self._is_listed = False

    def error_counts(self) -> Mapping[str, int]:
        """Return how many calls failed since the start, by error code; lacking values are none."""
        return dict(self._errors)

    def seen(self) -> tuple[GpuIdentity, ...]:
        """Return every board seen since the start, without a call into the driver."""
        return tuple(sorted(self._seen.values(), key=lambda identity: identity.index))

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs that the driver lists now and that may be touched, lost ones included.

        Raises
        ------
        DriverAbsent
            If there is no NVML library that loads, no driver or no GPU.
        NvmlError
            If the library fails.
        """
        with self._lock:
            self.marker.at(-1)
            self._initialise()
            count = self.call("nvmlDeviceGetCount")
            if count is None:
                raise NvmlError(f"NVML does not say how many GPUs there are: {self._refusal()}.")
            if count == 0:
                raise DriverAbsent("NVML lists no GPU.", "nvml_no_gpu_listed")
            if count != self._count:
                # Indexes may mean other boards now.
                self._gpus = ()
            elif self._is_listed and all(gpu.answers for gpu in self._gpus):
                return self._gpus
            self._count = count
            known = {gpu.identity.index: gpu for gpu in self._gpus}
            self._gpus = tuple(
                self._gpu(index, known.get(index))
                for index in range(count)
                if self._may_touch(index)
            )
            self._is_listed = True
            return self._gpus

    def _may_touch(self, index: int) -> bool:
        return index not in self._excluded and self._only in {None, index}

    def call(self, function: str, *arguments: object, **options: object) -> Any:  # noqa: ANN401
        """Call a pynvml function; None if the driver, the binding or the board lacks it."""
        self._last_code = None
        try:
            # An older pynvml lacks the newest wrappers, as an older driver lacks functions.
            wrapper = _OWN_WRAPPERS.get(function) or getattr(pynvml, function, None)
            if wrapper is not None:
                return wrapper(*arguments, **options)
            self._last_code = "function_not_found"
        except pynvml.NVMLError as error:
            self._last_code = self._error_names.get(error.value, str(error.value))
            if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                self.handle_error(error.value, UNSUPPORTED)
                return None
        except _MISMATCH:
            # The same, of a function that has versions; it is no NVMLError.
            self._last_code = "function_not_found"
        except Exception as error:
            self._binding_failed(function, error)
            return None
        older = _OLDER_FUNCTIONS.get(function)
        return None if older is None else self.call(older, *arguments, **options)

    def _binding_failed(self, function: str, error: Exception) -> None:
        """Count what pynvml itself fails with: text that is no text, an argument it refuses."""
        self._last_code = f"binding_{error_class(error)}"
        self._errors[self._last_code] += 1
        if function not in self._binding_faults:
            self._binding_faults.add(function)
            _LOG.warning("NVML's Python binding failed function=%s error=%r", function, error)

    def _refusal(self) -> str:
        """Return why the last call gave None, in a word."""
        return self._last_code or "no answer"

    def handle_error(self, code: int, unsupported: frozenset[int]) -> None:
        """Decide what an NVML error code means: nothing, a lost GPU, or one to be counted."""
        if code in unsupported:
            return
        if code == pynvml.NVML_ERROR_GPU_IS_LOST:
            raise GpuLostError("A GPU is lost.")
        self.count_error(code)
        if code in _RELOADED:
            raise DriverReloadedError(
                f"The driver {self._driver!r} is gone: {self._error_names.get(code, code)}."
            )

    def count_error(self, code: int) -> None:
        """Count a failed call; a lost GPU is counted once, when it is lost."""
        self._errors[self._error_names.get(code, str(code))] += 1

    def count_loss(self, identity: GpuIdentity) -> None:
        """Count and log that a GPU was lost; it is not asked again until the driver lists it anew.

        Parameters
        ----------
        identity
            Which one, as far as it is known.
        """
        self.count_error(pynvml.NVML_ERROR_GPU_IS_LOST)
        _LOG.error(
            "GPU is lost gpu=%d uuid=%s pci_bus_id=%s",
            identity.index,
            identity.uuid,
            identity.pci_bus_id,
        )

    def _initialise(self) -> None:
        if self._initialised:
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self._explain(error)
        self._initialised = True
        self._driver = self.call("nvmlSystemGetDriverVersion") or ""
        _LOG.info("nvml initialised driver=%r", self._driver)

    def _explain(self, error: pynvml.NVMLError) -> NoReturn:
        """Raise what a failed initialisation means, with the loader's or the driver's own text."""
        if error.value == pynvml.NVML_ERROR_DRIVER_NOT_LOADED:
            raise DriverAbsent(f"No NVIDIA driver is loaded: {error}.", "nvml_driver_not_loaded")
        if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            # pynvml says "not found" of every failure to load; the loader says which.
            text = str(error if error.__context__ is None else error.__context__)
            is_there = error.__context__ is not None and not text.startswith(_NO_LIBRARY)
            word = "not_loadable" if is_there else "not_found"
            raise DriverAbsent(f"NVML cannot be loaded: {text}.", f"nvml_library_{word}")
        self.count_error(error.value)
        kind = _INITIALISATION_ERRORS.get(error.value, NvmlError)
        raise kind(f"NVML cannot be initialised: {error}.") from error

    def _gpu(self, index: int, known: Gpu | None) -> Gpu:
        """Return the GPU at an index; its identity is asked for once, and again after a loss."""
        if known is not None and known.answers:
            return known
        self.marker.at(index)
        try:
            handle = self.call("nvmlDeviceGetHandleByIndex", index)
            if handle is None:
                return self._refused(index, known)
            identity = self._identity(index, handle)
        except GpuLostError:
            if known is None:
                self.count_loss(GpuIdentity(index))
            if known is None or known.unreadable is not None:
                return Gpu(GpuIdentity(index) if known is None else known.identity, None, self)
            return known
        self._seen[identity.key] = identity
        return Gpu(identity, handle, self)

    def _refused(self, index: int, known: Gpu | None) -> Gpu:
        """Return a GPU that the driver lists and does not open."""
        reason = self._refusal()
        identity = GpuIdentity(index) if known is None else known.identity
        software = reason in _SOFTWARE or reason.startswith("binding_")
        return Gpu(identity, None, self, unreadable=reason if software else None)

    def _identity(self, index: int, handle: Any) -> GpuIdentity:  # noqa: ANN401
        pci = self.call("nvmlDeviceGetPciInfo", handle)
        return GpuIdentity(
            index=index,
            uuid=self.call("nvmlDeviceGetUUID", handle) or "",
            name=self.call("nvmlDeviceGetName", handle) or "",
            serial=self.call("nvmlDeviceGetSerial", handle) or "",
            pci_bus_id="" if pci is None else pci_address(pci.busId) or "",
            vbios=self.call("nvmlDeviceGetVbiosVersion", handle) or "",
            numa_node=self.call("nvmlDeviceGetNumaNodeId", handle),
        )
