"""How the functions of the fake NVML library are declared: one decorator per kind of function."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pynvml

if TYPE_CHECKING:
    from peerwatch_demo.simulated_node.nvml_library import FakeNvml

Function = Callable[..., int]
FUNCTIONS: dict[str, Function] = {}


class ReturnCode(Exception):  # noqa: N818 - NVML's way to answer, not always an error
    """Ends a fake function with an NVML return code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def library_function(name: str) -> Callable[[Function], Function]:
    """Register a function of the library that concerns no single GPU."""

    def add(function: Function) -> Function:
        FUNCTIONS[name] = functools.partial(_run, name, function)
        return function

    return add


def device_function(name: str) -> Callable[[Function], Function]:
    """Register a function whose first argument is a GPU's handle; it gets the GPU's dict."""

    def add(function: Function) -> Function:
        def call(fake: FakeNvml, handle: Any, *arguments: Any) -> int:
            return function(fake.gpu(address_of(handle) - 1, name), *arguments)

        FUNCTIONS[name] = functools.partial(_run, name, call)
        return function

    return add


def value_of(gpu: dict[str, Any], *keys: str) -> Any:
    """Return a nested value of the scenario; a missing one is not supported by the board."""
    found: Any = gpu
    for key in keys:
        if not isinstance(found, dict) or key not in found:
            raise ReturnCode(pynvml.NVML_ERROR_NOT_SUPPORTED)
        found = found[key]
    return found


def address_of(pointer: Any) -> int:
    """Return the address in an opaque pointer; it says which GPU, sample or set is meant."""
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def store_address(reference: Any, address: int) -> None:
    """Let an opaque pointer passed by reference point to an address."""
    ctypes.cast(ctypes.byref(reference._obj), ctypes.POINTER(ctypes.c_void_p))[0] = address


def _run(name: str, function: Function, fake: FakeNvml, *arguments: Any) -> int:
    fake.calls[name] = fake.calls.get(name, 0) + 1
    if not fake.initialised and name != "nvmlInitWithFlags":
        return int(pynvml.NVML_ERROR_UNINITIALIZED)
    try:
        return function(fake, *arguments) or int(pynvml.NVML_SUCCESS)
    except ReturnCode as answer:
        return answer.code
