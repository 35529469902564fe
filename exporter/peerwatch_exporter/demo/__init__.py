"""A scripted fake node under the real exporter, for rules, dashboards and people without GPUs.

The node is a server with eight H100 and eight RDMA NICs that trains as part of a larger job. From
the onset on a scenario changes something; everything is a function of the seed and of the time, so
that the driver process may be killed and started again and its counters go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.demo.scenarios import SCENARIOS as _SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_exporter.demo.node import DemoNode

__all__ = ["SCENARIOS", "start"]

SCENARIOS: Mapping[str, str] = {name: scenario.summary for name, scenario in _SCENARIOS.items()}


def start(name: str, seed: int, onset_seconds: float) -> DemoNode:
    """Start the fake node of a scenario.

    Parameters
    ----------
    name
        One of ``SCENARIOS``.
    seed
        Decides the differences between parts and the noise.
    onset_seconds
        When the scenario's change begins, in seconds after the start.

    Returns
    -------
    DemoNode
        The running node; its ``stop`` removes its files.

    Raises
    ------
    KeyError
        If there is no such scenario.
    """
    # The driver process needs only the boards.
    from peerwatch_exporter.demo.node import DemoNode  # noqa: PLC0415

    node = DemoNode(name, seed, onset_seconds)
    node.start()
    return node
