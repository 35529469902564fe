"""Segments trained by torch: the reference model on all devices of the segment's nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from peerwatch_checks.collectives.ranks import Group, ask
from peerwatch_checks.multihost.rounds import Store
from peerwatch_checks.multihost.segment_runs import NodeTrained, SegmentTask, Train
from peerwatch_checks.multihost.torch_pairs import interface_environment, meeting_point

# Of a segment's time: the rest is for hearing of the port and for telling the result, as in
# torch_pairs.py.
_SHARE = 0.85


def by_reference_model(
    store: Store, devices: Sequence[str], address: str, sizes: Mapping[str, int]
) -> Train:
    """Return what trains a segment, with a rank for each device of each node.

    Parameters
    ----------
    store
        Where a segment's first node says on which port it listens.
    devices
        This node's, as torch names them; all nodes have as many.
    address
        This node's, whose interface is used.
    sizes
        ``width``, ``layers``, ``batch``, ``sequence`` and ``steps`` of the reference model.
    """
    work = {
        "task": "training",
        "backend": "nccl" if devices[0].startswith("cuda") else "gloo",
        **sizes,
    }
    environment = interface_environment(address)

    def trained(task: SegmentTask) -> NodeTrained:
        try:
            init_method = meeting_point(
                store,
                f"port/{task.name}",
                address="" if task.place else address,
                host=task.host,
                seconds=(1 - _SHARE) * task.seconds,
            )
        except RuntimeError:
            return NodeTrained(0.0, 0.0, "the segment's first node did not begin")
        group = Group(init_method, task.place * len(devices), task.count * len(devices))
        found = ask(
            devices,
            work,
            seconds=_SHARE * task.seconds,
            environment=environment,
            group=group,
        )
        if found.failure:
            return NodeTrained(0.0, 0.0, found.failure)
        if not all(rank["right"] for rank in found.ranks):
            return NodeTrained(0.0, 0.0, "its ranks have different parameters after the same steps")
        return NodeTrained(
            max(float(rank["seconds"]) for rank in found.ranks),
            min(float(rank["bandwidth"]) for rank in found.ranks),
        )

    return trained
