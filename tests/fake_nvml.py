"""The fake NVML library for tests; it lives in the package, where ``--demo`` runs on it too."""

from __future__ import annotations

from peerwatch_exporter.demo.nvml_library import FakeNvml, install

__all__ = ["FakeNvml", "install"]
