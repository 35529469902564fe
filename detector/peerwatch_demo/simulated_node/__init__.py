"""A simulated training node under the real exporter, for rules, dashboards and people without GPUs.

The node is a server with eight H100 and eight RDMA NICs that trains as part of a larger job. From
the onset on a scenario changes something; everything is a function of the seed and of the time, so
that the driver process may be killed and started again and its counters go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_demo.simulated_node.scenarios import SCENARIOS as _SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SCENARIOS"]

SCENARIOS: Mapping[str, str] = {name: scenario.summary for name, scenario in _SCENARIOS.items()}
