"""Functions whose module is loaded when they are first called.

All workers collect all tests, and scikit-learn and matplotlib take three seconds of each to load.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def late(module: str, name: str) -> Callable[..., Any]:
    """Return a function of a module that need not be loaded yet."""

    def call(*arguments: Any, **named: Any) -> Any:
        return getattr(import_module(module), name)(*arguments, **named)

    return call
