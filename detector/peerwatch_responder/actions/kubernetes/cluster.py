"""What Kubernetes says of its nodes: how many, which are out and by whom, which are protected."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

from pydantic import Field

from peerwatch_responder.actions.kubernetes.api import Api
from peerwatch_responder.actions.kubernetes.cordon import ID
from peerwatch_responder.actions.kubernetes.node_step import MANAGED_LABEL, read_node
from peerwatch_responder.actions.kubernetes.server import ServerOptions
from peerwatch_responder.actions.kubernetes.taint import KEY, taints_of
from peerwatch_responder.cluster import ClusterOptions, register_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from peerwatch_responder.cluster import Owner, Place

# As the longest interval_seconds: no cycle may decide by a list that is older than the one before.
_MOST_SECONDS = 300.0
# So many nodes are asked for one by one; a list of all of them has less to wait for. Chosen: twice
# the nodes that may be out at once (concurrent_max).
_MOST_GETS = 20


class KubernetesOptions(ClusterOptions):
    """Settings of a cluster of type ``kubernetes``."""

    name: str = Field(
        default="",
        max_length=253,
        description="The label cluster of this cluster's alerts, and of no other's: nodes of two "
        "clusters may have one name; empty: they have none.",
    )
    server: ServerOptions = ServerOptions()
    node_selector: str = Field(
        default="",
        max_length=1000,
        pattern=r"^[A-Za-z0-9._/=!,() -]*$",
        description="Selector of labels, such as nvidia.com/gpu.present=true: only these nodes "
        "count for the budget, and only they are answered; empty: all.",
    )
    protected_labels: tuple[str, ...] = Field(
        default=("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"),
        description="Nodes with one of these labels are never touched.",
    )
    foreign_taints: tuple[str, ...] = Field(
        default=(
            *("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"),
            *("karpenter.sh/disruption", "node.kubernetes.io/out-of-service"),
        ),
        description="Keys of taints by which somebody else has taken a node out.",
    )
    refresh_seconds: float = Field(
        default=15.0,
        ge=0,
        le=_MOST_SECONDS,
        description="For how long the number of nodes and the protected ones are good.",
    )


@register_cluster("kubernetes", "Kubernetes", options=KubernetesOptions)
class KubernetesCluster:
    """Lists the nodes.

    Parameters
    ----------
    options
        Its settings.
    api
        The API server; None: as the settings say.
    clock
        Monotonic seconds.
    own_node
        The node that we run on; None: as the variable ``NODE_NAME`` says, which the chart sets.

    Attributes
    ----------
    api
        The API server, for the actions.
    """

    def __init__(
        self,
        options: KubernetesOptions,
        api: Api | None = None,
        clock: Callable[[], float] = time.monotonic,
        own_node: str | None = None,
    ) -> None:
        self._options = options
        self.api = api or Api(options.server)
        self._clock = clock
        self._own_node = os.environ.get("NODE_NAME", "") if own_node is None else own_node
        self._lock = threading.Lock()
        self._known: tuple[float, Mapping[str, tuple[Owner, bool]]] | None = None

    def size(self) -> int | None:
        """Return how many nodes there are.

        Raises
        ------
        UnknownError
            If they could not be listed.
        """
        return len(self._nodes())

    def owners(self, places: Collection[Place]) -> Mapping[Place, Owner]:
        """Return who has taken nodes out; those of other clusters, or that are gone, are left out.

        Raises
        ------
        UnknownError
            If they could not be listed.
        """
        mine = self._options.name
        listed = self._nodes()
        names = {node for cluster, node in places if cluster == mine and node in listed}
        if len(names) > _MOST_GETS:
            self._forget()
            listed = self._nodes()
            return {(mine, name): listed[name][0] for name in names if name in listed}
        # A list of a moment ago may be older than what we have done since.
        now = {name: read_node(self.api, name) for name in names}
        return {(mine, name): self._owner(node) for name, node in now.items() if node is not None}

    def protected(self) -> frozenset[Place]:
        """Return the control plane, our own node, and those that a label says are not ours.

        Raises
        ------
        UnknownError
            If they could not be listed.
        """
        found = {name for name, (_, is_protected) in self._nodes().items() if is_protected}
        if self._own_node:
            found.add(self._own_node)
        return frozenset((self._options.name, name) for name in found)

    def _nodes(self) -> Mapping[str, tuple[Owner, bool]]:
        with self._lock:
            now = self._clock()
            if self._known is None or now - self._known[0] > self._options.refresh_seconds:
                # What was known before is not kept: it may be otherwise by now.
                self._known = None
                self._known = now, self._listed()
            return self._known[1]

    def _forget(self) -> None:
        with self._lock:
            self._known = None

    def _listed(self) -> Mapping[str, tuple[Owner, bool]]:
        selector = self._options.node_selector
        query = {"labelSelector": selector} if selector else {}
        return {
            str(each["metadata"].get("name")): (self._owner(each), self._is_protected(each))
            for each in self.api.list("list nodes", "/api/v1/nodes", query)
            if isinstance(each.get("metadata"), dict)
        }

    def _owner(self, node: Mapping[str, Any]) -> Owner:
        metadata, spec = node["metadata"], node.get("spec") or {}
        taints = {str(each.get("key")) for each in taints_of(node)}
        if metadata.get("deletionTimestamp") or taints & set(self._options.foreign_taints):
            return "other"
        if spec.get("unschedulable"):
            return "ours" if (metadata.get("annotations") or {}).get(ID) else "other"
        return "ours" if KEY in taints else "nobody"

    def _is_protected(self, node: Mapping[str, Any]) -> bool:
        labels = node["metadata"].get("labels") or {}
        named = any(each in labels for each in self._options.protected_labels)
        return named or labels.get(MANAGED_LABEL) == "false"
