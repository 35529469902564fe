"""Which of the node's configuration is published."""

from __future__ import annotations

from pydantic import Field

from peerwatch_exporter.settings.section import Section


class NodeConfigConfig(Section):
    """What is published of how node and ranks are set up."""

    max_values: int = Field(
        default=400,
        ge=1,
        le=5000,
        description="Maximum number of values in node_config_info, and of all jobs together in "
        "rank_config_info.",
    )
    rank_variables: bool = Field(
        default=True,
        description="Publish variables and limits of the ranks: those of a list (NCCL_*, CUDA_*, "
        "OMP_* and others), never a name that sounds like a secret; search paths as digests.",
    )
