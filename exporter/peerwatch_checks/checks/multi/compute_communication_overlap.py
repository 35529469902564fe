"""Whether nodes hide communication behind computing as well as their peers do.

Pairs of nodes compute, communicate, and do both at once. A node that is as fast as others in each
alone, and slower than they in both, has a core, PCIe lanes or memory that both want: its pairs are
low with every partner, and that names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_checks.check import register
from peerwatch_checks.multihost.pair_outcomes import Words
from peerwatch_checks.multihost.pair_rounds import PairOptions, PairTest, tested_in_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from peerwatch_checks.check import Context, Outcome

# Two nodes say nothing of who of them it is.
_LEAST_NODES = 3
_WORDS = Words(
    "overlap",
    "an overlap of {value:.2f}, others {level:.2f}",
    " Look at what its CPU cores, PCIe lanes and NUMA nodes are shared with.",
)


class ComputeCommunicationOverlapOptions(PairOptions):
    """Other sizes and another tolerance."""

    partners: int = Field(
        default=3,
        ge=2,
        le=16,
        description="How many others each node meets; one more than there may be bad nodes.",
    )
    gpu_megabytes: int = Field(default=512, ge=1, description="Buffer of each GPU, in MiB.")
    cpu_megabytes: int = Field(default=8, ge=1, description="Buffer without GPUs, in MiB.")
    repeats: int = Field(
        default=10, ge=1, description="How often each is timed; the shortest counts."
    )
    tolerance: float = Field(
        default=0.25,
        gt=0,
        lt=1,
        description="Share below the peers' overlap that is no fault: taking turns costs a half, "
        "what GPUs share by design up to a fifth.",
    )


@register(
    "compute_communication_overlap",
    "multi",
    "computing, communicating, and both at once between pairs of nodes: how much is hidden",
    failure="on the node both want the same: a core, PCIe lanes, memory; or a node is dead",
    condition="slow_host",
    seconds=60.0,
    suites=("full",),
    needs=("torch", "peers"),
    timeout_seconds=360.0,
    options=ComputeCommunicationOverlapOptions,
)
def compute_communication_overlap(
    context: Context, *, environment: Mapping[str, str] | None = None
) -> Iterator[Outcome]:
    """Yield what is known of this node, and on the first one of everything else.

    Parameters
    ----------
    context
        Node, settings, time.
    environment
        Of torchrun or srun; None: that of the process.
    """
    from peerwatch_checks.multihost.torch_pairs import by_overlap  # noqa: PLC0415 - loads psutil

    options = context.options
    assert isinstance(options, ComputeCommunicationOverlapOptions)
    test = PairTest(
        "overlap",
        port_offset=1,
        least_nodes=_LEAST_NODES,
        too_few=f"It needs {_LEAST_NODES} nodes, there are {{count}}: peers decide.",
        buffers=2,
        measure=by_overlap,
        words=_WORDS,
    )
    yield from tested_in_pairs(context, options, test, environment=environment, places=None)
