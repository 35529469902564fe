"""Finds what is registered: a folder for each system that is told to, a file for each thing."""

from __future__ import annotations

import importlib
import pkgutil


def import_backends() -> None:
    """Import every file of every backend, so that what stands in them is registered."""
    root = importlib.import_module("peerwatch_responder.actions")
    for backend in pkgutil.iter_modules(root.__path__):
        package = importlib.import_module(f"{root.__name__}.{backend.name}")
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
