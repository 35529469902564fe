"""Asks NVML for many fields of a GPU in one call.

pynvml's own wrapper fills in the request attribute by attribute, field by field, which takes
longer than asking: some hundred fields a second, always the same ones.
"""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache
from typing import Any

import pynvml

# nvmlFieldValue_t: field, scope, time, latency, kind of value, NVML's answer, value. Each attribute
# of pynvml's structures takes longer than this whole one.
FIELD = struct.Struct("=IIqqII8s")
_NO_VALUE = bytes(8)
# A board is asked about a handful of sets, NVLinks one by one about a few more.
_MOST_REQUESTS = 64


def field_values(handle: Any, wanted: tuple[tuple[int, int], ...]) -> ctypes.Array[ctypes.c_char]:  # noqa: ANN401
    """Return NVML's answer as it lies in memory: a ``FIELD`` for each (field id, scope).

    Raises
    ------
    NVMLError
        If NVML refuses the request as a whole, or does not know it.
    """
    try:
        ask = pynvml.nvmlLib.nvmlDeviceGetFieldValues
    except AttributeError as missing:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from missing
    request = _request(wanted)
    answer = ctypes.create_string_buffer(request, len(request))
    code = ask(handle, ctypes.c_int32(len(wanted)), ctypes.byref(answer))
    if code != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(code)
    return answer


@lru_cache(maxsize=_MOST_REQUESTS)
def _request(wanted: tuple[tuple[int, int], ...]) -> bytes:
    return b"".join(FIELD.pack(field, scope, 0, 0, 0, 0, _NO_VALUE) for field, scope in wanted)
