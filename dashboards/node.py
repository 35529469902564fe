"""The node dashboard: one node from its GPUs to its processes, and the training job on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import configuration
import findings
import fleet_checks
import node_gpu
import node_gpu_use
import node_host
import node_links
import node_nic
import node_state
import variables
import xid
from board import board
from promql import NODE

if TYPE_CHECKING:
    from grafana_foundation_sdk.models import dashboard as models


def node_dashboard() -> models.Dashboard:
    """Return the node dashboard."""
    return board(
        "node",
        "Node",
        "One node: GPUs, NVLink, PCIe, NICs, host, and the training job on it.",
        [
            variables.datasource(),
            variables.cluster("exporter_build_info"),
            variables.any_job(),
            variables.node(),
        ],
        {
            "Is the node well": node_state.panels(NODE),
            "GPUs": node_gpu.panels(NODE),
            "GPU memory and energy": node_gpu.health(NODE),
            "GPU users and settings": node_gpu_use.panels(NODE),
            "NVLink and PCIe": node_links.panels(NODE),
            "NICs": node_nic.panels(NODE),
            "Host": node_host.panels(NODE),
            "Active checks": fleet_checks.of_node(NODE),
            "Configuration": configuration.of_node(NODE, f'{NODE}, job_id=~"$job_id"'),
            "Ranks of the training job": node_host.ranks(f'{NODE}, job_id=~"$job_id"'),
        },
        [findings.annotation(NODE), xid.annotation(NODE)],
    )
