"""Bandwidth between pairs of nodes, in rounds with distinct partners: node, link, uplink, fabric.

It is started on all nodes at once, by torchrun or srun. Each node reports on itself; the first one
also on links, uplinks and nodes that did not come.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_checks.check import register
from peerwatch_checks.multihost.pair_outcomes import Words
from peerwatch_checks.multihost.pair_rounds import PairOptions, PairTest, tested_in_pairs
from peerwatch_checks.multihost.places import read_places

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from peerwatch_checks.check import Context, Outcome


class PairBandwidthOptions(PairOptions):
    """Floor and topology besides."""

    floor_gigabytes: float | None = Field(
        default=None, gt=0, description="What a pair must reach, in GB/s of bus bandwidth."
    )
    topology: Path | None = Field(
        default=None,
        description="A YAML file: below each node's name its leaf and pod. Without it no uplink "
        "is told from links.",
    )


@register(
    "pair_bandwidth",
    "pair",
    "all-reduce between pairs of nodes, each with distinct partners: bandwidth and right sums",
    failure="a NIC, a cable, a port or an uplink is slow or loses packets, or a node is dead",
    condition="network_link_errors",
    seconds=60.0,
    suites=("full",),
    needs=("torch", "peers"),
    timeout_seconds=360.0,
    options=PairBandwidthOptions,
)
def pair_bandwidth(
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
    from peerwatch_checks.multihost.torch_pairs import by_all_reduce  # noqa: PLC0415 - loads psutil

    options = context.options
    assert isinstance(options, PairBandwidthOptions)
    test = PairTest(
        "pair",
        port_offset=0,
        least_nodes=2,
        too_few="One node has nobody to be paired with.",
        buffers=3,
        measure=by_all_reduce,
        words=Words("GB/s", "{value:.4g} of {level:.4g} GB/s"),
        floor=options.floor_gigabytes,
    )
    places = read_places(options.topology)
    yield from tested_in_pairs(context, options, test, environment=environment, places=places)
