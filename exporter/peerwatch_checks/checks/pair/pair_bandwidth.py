"""Bandwidth between pairs of nodes, in rounds with distinct partners: node, link, uplink, fabric.

It is started on all nodes at once, by torchrun or srun. Each node reports on itself; the first one
also on links, uplinks and nodes that did not come.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_checks.accelerators.devices import CPU, Device, gpus
from peerwatch_checks.check import Options, Outcome, Skip, register
from peerwatch_checks.multihost.member import Member, member_of
from peerwatch_checks.multihost.rounds import Limits, Result, Rounds
from peerwatch_common.settings.yaml_file import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from peerwatch_checks.check import Context
    from peerwatch_checks.pairs.naming import Suspect

_LISTED = 8
_LEAST_NODES = 2


class PairBandwidthOptions(Options):
    """Sizes, times and tolerances."""

    partners: int = Field(
        default=3,
        ge=1,
        le=16,
        description="How many others each node meets; one more than there may be bad nodes.",
    )
    gpu_megabytes: int = Field(default=2048, ge=1, description="Buffer of each GPU, in MiB.")
    cpu_megabytes: int = Field(default=16, ge=1, description="Buffer without GPUs, in MiB.")
    repeats: int = Field(default=10, ge=1, description="How often a pair's collective is timed.")
    tolerance: float = Field(
        default=0.15, gt=0, lt=1, description="Share below the healthy level that is no fault."
    )
    floor_gigabytes: float | None = Field(
        default=None, gt=0, description="What a pair must reach, in GB/s of bus bandwidth."
    )
    join_seconds: float = Field(
        default=60.0, gt=0, description="Until then a node has come, or it is missing."
    )
    pair_seconds: float = Field(default=60.0, gt=0, description="What a pair's test may take.")
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
    severity="high",
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
    from peerwatch_checks.multihost import torch_pairs  # noqa: PLC0415 - loads psutil

    # A partner that has gone is an outcome, not pages of C++ frames.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    options = context.options
    assert isinstance(options, PairBandwidthOptions)
    member = member_of(os.environ if environment is None else environment)
    if not member.leads:
        raise Skip("The first process of the node tests for all of it.")
    if member.count < _LEAST_NODES:
        raise Skip("One node has nobody to be paired with.")
    devices = _devices(context)
    megabytes = options.gpu_megabytes if devices[0].is_gpu else options.cpu_megabytes
    address = member.address()
    store = torch_pairs.store_of(member, options.join_seconds)
    measure = torch_pairs.by_all_reduce(
        store,
        [device.name for device in devices],
        address,
        size=min(device.fits(3 * megabytes << 20) // 3 for device in devices),
        repeats=options.repeats,
    )
    limits = Limits(
        options.join_seconds,
        options.pair_seconds,
        options.partners,
        options.tolerance,
        options.floor_gigabytes,
    )
    places = _places(options.topology)
    result = Rounds(store, member, context.node, address, measure, limits).run(places)
    yield from _outcomes(result, member)


def _devices(context: Context) -> list[Device]:
    try:
        return gpus(context)
    except Skip:
        return [CPU]


def _places(path: Path | None) -> dict[str, dict[str, str]]:
    if path is None:
        return {}
    found: object = read_yaml(path)
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise ValueError(f"{path}: below each node's name there must be its leaf and pod.")
    return {
        str(node): {str(level): str(name) for level, name in place.items()}
        for node, place in found.items()
    }


def _outcomes(result: Result, member: Member) -> Iterator[Outcome]:
    own = result.names[member.index]
    found = [each for each in result.named.suspects if each.names == (own,)]
    if found:
        yield _told(found[0], result)
    else:
        yield _well(own, result)
    if member.index:
        return
    for index in result.missing:
        text = f"Node {index} of the job did not come. Look whether it is up and was started."
        yield Outcome("fail", text, f"node {index}")
    for suspect in result.named.suspects:
        if suspect.names != (own,):
            yield _told(suspect, result)


def _well(own: str, result: Result) -> Outcome:
    mine = {pair: value for pair, value in result.bandwidth.items() if own in pair}
    level = result.named.level
    if not mine:
        return Outcome("skipped", "No other node came to be paired with.")
    best = max(mine.values())
    if not result.named.enough and result.named.suspects == ():
        text = f"{best:.4g} GB/s between two nodes; without a third or a floor that says nothing."
        return Outcome("skipped", text, "", best, "GB/s")
    if any(own in each.names and each.kind == "undecided" for each in result.named.suspects):
        text = f"{best:.4g} of {level:.4g} GB/s; whether it is this node or its partner is open."
        return Outcome("error", text, "", best, "GB/s", level)
    text = f"{best:.4g} GB/s at best with {len(mine)} others; the healthy level is {level:.4g}."
    return Outcome("pass", text, "", best, "GB/s", level)


def _told(suspect: Suspect, result: Result) -> Outcome:
    level = result.named.level
    value = suspect.ratio * level
    names = " - ".join(suspect.names[:_LISTED])
    reached = f"{value:.4g} of {level:.4g} GB/s"
    why = _why(suspect, result)
    if suspect.kind == "node":
        way = f" when {suspect.direction}" if suspect.direction else ""
        text = f"{names} does {reached} at best with any other node{way}{why}. Take it out."
    elif suspect.kind == "link":
        text = f"{names} do {reached}, with others more{why}. Look at the path between them."
    elif suspect.kind == "uplink":
        text = f"What crosses {names} does {reached} at best. Look at its uplinks; no node is bad."
    elif suspect.kind == "fabric":
        share = f"{suspect.ratio:.0%} of the floor at best"
        text = f"All pairs are low ({share}): it is the fabric or a setting, not a node."
    else:
        text = f"{names} do {reached}{why}; which of them it is, a third node would show."
        return Outcome("error", text, names, value, "GB/s", level)
    device = "fabric" if suspect.kind == "fabric" else names
    return Outcome("fail", text, device, value, "GB/s", level)


def _why(suspect: Suspect, result: Result) -> str:
    """Return why a pair of the suspect's has no bandwidth, if one has none."""
    failures = [text for pair, text in result.failures.items() if set(suspect.names) & set(pair)]
    return f" ({failures[0]})" if failures else ""
