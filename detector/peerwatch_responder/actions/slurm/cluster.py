"""Slurm as a cluster: how many nodes it has, who has taken them out, and which are left alone."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, FilePath

from peerwatch_responder.action import RejectedError
from peerwatch_responder.actions.slurm.command import Commands
from peerwatch_responder.actions.slurm.node import nodes_of
from peerwatch_responder.cluster import ClusterOptions, register_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from peerwatch_responder.action import Target
    from peerwatch_responder.actions.slurm.node import Node
    from peerwatch_responder.cluster import Owner, Place

# One cycle asks three things of the same nodes; the next comes after 5 s (interval_seconds).
_KEPT_SECONDS = 1.0
_CONTROLLER = re.compile(r"(?m)^SlurmctldHost\[\d+\]\s*=\s*([^\s(]+)")


class SlurmOptions(ClusterOptions):
    """Settings of a Slurm cluster."""

    name: str = Field(
        default="",
        description="Its label cluster in alerts; those of another are not answered. Empty: alerts "
        "without the label.",
    )
    folder: Path = Field(
        default=Path("/usr/bin"), description="Where scontrol, sinfo and squeue are."
    )
    configuration: FilePath | None = Field(
        default=None, description="Slurm's settings; unset: where its commands look for them."
    )
    timeout_seconds: float = Field(
        default=30.0, gt=0, le=300, description="Longest run of one of Slurm's commands."
    )
    partitions: tuple[str, ...] = Field(
        default=(), description="Partitions whose nodes may be touched; empty: all."
    )
    reserved: bool = Field(
        default=False, description="Whether nodes in a reservation may be touched."
    )


@register_cluster("slurm", "a cluster that Slurm runs", options=SlurmOptions)
class SlurmCluster:
    """Asks Slurm by its commands.

    Parameters
    ----------
    options
        Its settings.
    clock
        Monotonic seconds.

    Attributes
    ----------
    commands
        Slurm's commands.
    reserved
        Whether nodes in a reservation may be touched.
    """

    def __init__(self, options: SlurmOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._known: tuple[float, dict[str, Node]] | None = None
        self._own: frozenset[str] | None = None
        self.commands = Commands(options.folder, options.configuration, options.timeout_seconds)
        self.reserved = options.reserved

    def size(self) -> int | None:
        """Return how many nodes it has, in the partitions of the settings."""
        return sum(self._may_touch(each) for each in self._nodes().values())

    def owners(self, places: Collection[Place]) -> Mapping[Place, Owner]:
        """Return who has taken nodes out: drained, failed, down, in maintenance or reserved."""
        nodes = self._nodes()
        return {
            (cluster, node): nodes[node].owner(reserved=self.reserved)
            for cluster, node in places
            if cluster == self._options.name and node in nodes
        }

    def protected(self) -> frozenset[Place]:
        """Return the controllers, our own node, and nodes outside the partitions."""
        if self._own is None:
            here = socket.gethostname()
            controllers = _CONTROLLER.findall(self.commands.ask("scontrol", "show", "config"))
            hosts = {here, *controllers}
            self._own = frozenset(hosts | {each.split(".")[0] for each in hosts})
        others = {name for name, each in self._nodes().items() if not self._may_touch(each)}
        return frozenset((self._options.name, each) for each in self._own | others)

    def check(self, target: Target) -> None:
        """Reject a target of another cluster.

        Raises
        ------
        RejectedError
            If it is.
        """
        if target.cluster != self._options.name:
            raise RejectedError(
                f"The alert is of cluster {target.cluster!r}; cluster.name is "
                f"{self._options.name!r}."
            )

    def _may_touch(self, node: Node) -> bool:
        wanted = self._options.partitions
        return not wanted or not node.partitions.isdisjoint(wanted)

    def _nodes(self) -> dict[str, Node]:
        now = self._clock()
        if self._known is None or now - self._known[0] >= _KEPT_SECONDS:
            self._known = now, nodes_of(self.commands)
        return self._known[1]
