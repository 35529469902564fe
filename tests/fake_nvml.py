"""The fake NVML library for tests; it lives with the simulated node, which runs on it too."""

from __future__ import annotations

from peerwatch_demo.simulated_node.nvml_library import FakeNvml, install

__all__ = ["FakeNvml", "install"]
