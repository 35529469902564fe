"""Steps of a reference model on parts of the job, cut where the fabric is: Aegis' OfflineDiag.

For faults that pairs of nodes do not show. It is started on all nodes at once, by torchrun or srun,
on the nodes that the diagnosis proposes. Each node reports on itself, and is handed back as soon as
its part is healthy; the first one also reports links, places and the fabric.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_checks.accelerators.devices import gpus_or_cpu
from peerwatch_checks.check import Options, Outcome, register
from peerwatch_checks.multihost.member import Member, came_too_late, first_node_gone, take_part
from peerwatch_checks.multihost.places import read_places
from peerwatch_checks.multihost.segment_runs import SegmentResult, SegmentRuns
from peerwatch_checks.segments.evidence import Tolerances

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from peerwatch_checks.check import Context
    from peerwatch_checks.segments.search import Suspect
    from peerwatch_common.check_results.record import Status

# Of two parts nobody knows which is slow.
_LEAST_NODES = 3
# Names in a sentence: chosen, more than are ever to be looked at one by one.
_LISTED = 8


class ReferenceTrainingOptions(Options):
    """The model, times and tolerances."""

    gpu_width: int = Field(default=2048, ge=8, multiple_of=8, description="Width on GPUs.")
    gpu_tokens: int = Field(default=2048, ge=1, description="Tokens of each rank's batch on GPUs.")
    cpu_width: int = Field(default=256, ge=8, multiple_of=8, description="Width without GPUs.")
    cpu_tokens: int = Field(default=128, ge=1, description="Tokens of a batch without GPUs.")
    layers: int = Field(default=2, ge=1, description="Layers of the model.")
    steps: int = Field(default=10, ge=1, description="How many steps are timed.")
    tolerance: float = Field(
        default=0.15, gt=0, lt=1, description="Share below the best part that is no fault."
    )
    whole_tolerance: float = Field(
        default=0.3,
        gt=0,
        lt=1,
        description="Share that all nodes together may be below their parts: what uplinks that "
        "are narrower by design cost.",
    )
    compute_tolerance: float = Field(
        default=0.25, gt=0, description="Share that a node may compute longer than its peers."
    )
    join_seconds: float = Field(
        default=60.0, gt=0, description="Until then a node has come, or it is missing."
    )
    segment_seconds: float = Field(
        default=90.0, gt=0, description="What the steps of a part may take."
    )
    topology: Path | None = Field(
        default=None,
        description="A YAML file: below each node's name its leaf, pod or rack. Without it nodes "
        "are cut into halves.",
    )


@register(
    "reference_training",
    "multi",
    "steps of a reference model on parts of the job, cut by pod and leaf, bisected and confirmed",
    failure="a node is slow, dead or computes something else, or a link or the fabric is slow",
    condition="slow_with_peers",
    seconds=120.0,
    suites=(),
    needs=("torch", "peers"),
    timeout_seconds=900.0,
    options=ReferenceTrainingOptions,
)
def reference_training(
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
    # Both load psutil.
    from peerwatch_checks.multihost.torch_pairs import store_of  # noqa: PLC0415
    from peerwatch_checks.multihost.torch_segments import by_reference_model  # noqa: PLC0415

    options = context.options
    assert isinstance(options, ReferenceTrainingOptions)
    member = take_part(
        environment,
        least_nodes=_LEAST_NODES,
        too_few=f"It needs {_LEAST_NODES} nodes to compare, there are {{count}}.",
    )
    places = read_places(options.topology)
    if places and context.node not in places:
        raise ValueError(f"{options.topology}: {context.node} is not in it, other nodes are.")
    devices = gpus_or_cpu(context)
    on_gpu = devices[0].is_gpu
    sizes = {
        "width": options.gpu_width if on_gpu else options.cpu_width,
        "sequence": options.gpu_tokens if on_gpu else options.cpu_tokens,
        "batch": 1,
        "layers": options.layers,
        "steps": options.steps,
    }
    address = member.address()
    tolerances = Tolerances(options.tolerance, options.whole_tolerance, options.compute_tolerance)
    try:
        store = store_of(member, options.join_seconds, purpose="training", port_offset=2)
        runs = SegmentRuns(
            store,
            member,
            context.node,
            address,
            by_reference_model(store, [device.name for device in devices], address, sizes),
            join_seconds=options.join_seconds,
            segment_seconds=options.segment_seconds,
        )
        result = runs.run(places, tolerances)
    except RuntimeError as error:
        yield first_node_gone(member, error)
        return
    yield from outcomes(result, member)


def outcomes(result: SegmentResult, member: Member) -> Iterator[Outcome]:
    """Yield what the search says of this node, and on the first one of everything else.

    What is about this node has no device, whatever is about others has theirs.

    Parameters
    ----------
    result
        Of the search.
    member
        Which node this is.
    """
    if member.index not in result.names:
        yield came_too_late(member)
        return
    own = result.names[member.index]
    if len(result.names) < _LEAST_NODES:
        text = f"{len(result.names)} of {member.count} nodes came, {_LEAST_NODES} are needed."
        yield Outcome("skipped", text)
    elif result.found is None:
        text = f"Its part of the job is healthy; it was handed back after {result.stages} stages."
        yield Outcome("pass", text)
    else:
        about = [each for each in result.found.suspects if each.names == (own,)]
        yield replace(_outcome(about[0]), device="") if about else _well(own, result)
    if member.index:
        return
    for index in result.missing:
        text = f"Node {index} of the job did not come. Look whether it is up and was started."
        yield Outcome("fail", text, f"node {index}")
    for suspect in result.found.suspects if result.found else ():
        if suspect.names != (own,):
            yield _outcome(suspect)


def _well(own: str, result: SegmentResult) -> Outcome:
    assert result.found is not None
    unsure = [s for s in result.found.suspects if own in s.names or s.kind in {"place", "fabric"}]
    level = result.found.level
    if unsure:
        names = " - ".join(unsure[0].names[:_LISTED])
        text = f"No fault of this node by itself; {names} {unsure[0].evidence}."
        return Outcome("pass" if unsure[0].kind == "fabric" else "warn", text, "", level, "GB/s")
    text = f"It trains as its peers do after {result.stages} stages; {level:.3g} GB/s."
    return Outcome("pass", text, "", level, "GB/s")


_ADVICE = {
    "node": "Take it out.",
    "place": "Look at its switch.",
    "link": "Look at the path between them.",
    "fabric": "No part of it is bad: look at what joins them, and at settings.",
    "undecided": "A known-good node beside it would show.",
}


def _outcome(suspect: Suspect) -> Outcome:
    names = " - ".join(suspect.names[:_LISTED])
    text = f"{names} {suspect.evidence}. {_ADVICE[suspect.kind]}"
    status: Status = "error" if suspect.kind == "undecided" else "fail"
    return Outcome(status, text, names, suspect.ratio, "ratio", 1.0)
