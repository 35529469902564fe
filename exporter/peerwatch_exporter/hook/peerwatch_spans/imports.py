"""Calls a function when a module has been imported, whoever imports it and however late."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Instrument = Callable[[ModuleType], None]


class _Finder:
    """Finds the modules of interest as ``PathFinder`` does, and adds a call to their execution.

    The loader stays what it is: tools that look at it find nothing unusual.
    """

    def __init__(self, instruments: Mapping[str, Instrument]) -> None:
        self._instruments = dict(instruments)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's specification, or None for all that is not of interest."""
        instrument = self._instruments.get(name)
        if instrument is None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_instrument(module: ModuleType) -> None:
            execute(module)
            with suppress(Exception):
                instrument(module)

        with suppress(AttributeError):  # a loader that takes no attributes is left alone
            spec.loader.exec_module = execute_and_instrument  # type: ignore[method-assign]
        return spec


def after_import(instruments: Mapping[str, Instrument]) -> None:
    """Call each function with its module, now if it is imported already, else once it is."""
    for name, instrument in instruments.items():
        module = sys.modules.get(name)
        if module is not None:
            with suppress(Exception):
                instrument(module)
    sys.meta_path.insert(0, _Finder(instruments))
