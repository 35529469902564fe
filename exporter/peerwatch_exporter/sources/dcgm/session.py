"""One connection to a DCGM host engine, through DCGM's own Python bindings.

The bindings (``pydcgm``) come with DCGM's packages, not from PyPI. A host engine that runs is
connected to and none is started, since two engines cannot profile one GPU at a time, and one engine
serves any number of readers.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerwatch_exporter.sources.dcgm.fields import CHOICES

if TYPE_CHECKING:
    from collections.abc import Sequence

# Of datacenter-gpu-manager 4, and of 2 and 3.
USUAL_DIRECTORIES = (
    "/usr/share/datacenter-gpu-manager-4/bindings/python3",
    "/usr/local/dcgm/bindings/python3",
    "/usr/local/dcgm/bindings",
)
# Chosen: an engine on the node answers in milliseconds. It updates as often as it is asked, and
# keeps what is still said.
_CONNECT_MILLISECONDS = 3000
_UPDATE_MICROSECONDS = 1_000_000
_KEEP_SECONDS = 10.0
# A value this old, ten updates, is no longer said: profiling was paused, or the engine stands
# still.
_OLDEST_SECONDS = 10.0
# Of dcgm_structs.h.
_ERROR_CLASSES = {
    -6: "dcgm_profiling_not_supported",
    -21: "dcgm_not_reachable",
    -25: "dcgm_library_not_found",
    -29: "dcgm_needs_root",
    -33: "dcgm_profiling_not_supported",
    -34: "dcgm_profiling_in_use",
    -36: "dcgm_profiling_not_supported",
    -37: "dcgm_profiling_failed",
}

# By uuid, the value of each field.
Values = dict[str, dict[int, float]]


class DcgmSessionError(Exception):
    """DCGM cannot be read; ``error_class`` says why in a word."""

    def __init__(self, error_class: str, message: str) -> None:
        super().__init__(message)
        self.error_class = error_class


class DcgmSession:
    """A connection that watches the profiling fields of all GPUs.

    Parameters
    ----------
    address
        Host and port, or path of a socket.
    bindings
        Directory of the bindings; None: the usual ones are tried.

    Raises
    ------
    DcgmSessionError
        If there are no bindings or no library, the engine does not answer, or it cannot profile.
    """

    def __init__(self, address: str, bindings: str | None) -> None:
        pydcgm = _import_bindings(bindings)
        place = "unixSocketPath" if address.startswith("/") else "ipAddress"
        try:
            self._handle = pydcgm.DcgmHandle(**{place: address}, timeoutMs=_CONNECT_MILLISECONDS)
            system = self._handle.GetSystem()
            self._group = system.GetDefaultGroup()
            self._uuids = {
                gpu: _text(system.discovery.GetGpuAttributes(gpu).identifiers.uuid)
                for gpu in self._group.GetGpuIds()
            }
            self._fields = self._watch(pydcgm)
        except DcgmSessionError:
            raise
        except Exception as error:
            raise _known(error, address) from error

    def values(self, now: float) -> Values:
        """Return the newest values at the Unix time ``now``; what has none is left out.

        Raises
        ------
        DcgmSessionError
            If the engine no longer answers.
        """
        try:
            latest = self._group.samples.GetLatest(self._fields).values
        except Exception as error:
            raise _known(error, "the host engine") from error
        return {
            uuid: {
                field: value
                for field, series in latest.get(gpu, {}).items()
                if (value := _newest(series, now)) is not None
            }
            for gpu, uuid in self._uuids.items()
            if uuid
        }

    def _watch(self, pydcgm: Any) -> Any:  # noqa: ANN401 - what the bindings make
        for number, fields in enumerate(CHOICES):
            try:
                name = f"peerwatch-{os.getpid()}-{number}"
                chosen = pydcgm.DcgmFieldGroup(self._handle, name, list(fields))
                self._group.samples.WatchFields(chosen, _UPDATE_MICROSECONDS, _KEEP_SECONDS, 0)
            except Exception:
                if fields is CHOICES[-1]:
                    raise
            else:
                return chosen
        raise AssertionError("There is a last choice.")


def _import_bindings(bindings: str | None) -> Any:  # noqa: ANN401 - a module without types
    directories: Sequence[str] = USUAL_DIRECTORIES if bindings is None else (bindings,)
    found = [each for each in directories if (Path(each) / "pydcgm.py").is_file()]
    if not found:
        tried = ", ".join(directories)
        raise DcgmSessionError(
            "dcgm_bindings_not_found",
            f"There is no pydcgm.py in {tried}. Install DCGM's package "
            "(datacenter-gpu-manager-4-core), set dcgm.bindings, or switch dcgm.enabled off.",
        )
    sys.path.insert(0, found[0])
    try:
        return importlib.import_module("pydcgm")
    except Exception as error:
        raise DcgmSessionError(
            "dcgm_bindings_unusable", f"{found[0]}/pydcgm.py cannot be imported: {error!r}."
        ) from error


def _known(error: Exception, address: str) -> DcgmSessionError:
    """Return what an exception of the bindings means, by DCGM's own number."""
    word = _ERROR_CLASSES.get(getattr(error, "value", 0), "dcgm_error")
    return DcgmSessionError(word, f"DCGM at {address}: {error!r}.")


def _newest(series: Any, now: float) -> float | None:  # noqa: ANN401 - of the bindings
    """Return the last value of a field's time series; None if it is blank, old or no number."""
    if not len(series):
        return None
    last = series[-1]
    if last.isBlank or now - last.ts / 1e6 > _OLDEST_SECONDS:
        return None
    value = float(last.value)
    return value if math.isfinite(value) and value >= 0 else None


def _text(value: str | bytes) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value
