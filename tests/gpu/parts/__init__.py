"""The parts, a file each, in the order of their names: ``run(node) -> Result``."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpu.part import Node, Result


def parts() -> Iterator[tuple[str, Callable[[Node], Result]]]:
    """Yield name and function of every part; a new file here is run like the others."""
    for module in sorted(item.name for item in pkgutil.iter_modules(__path__)):
        yield module, importlib.import_module(f"{__name__}.{module}").run
