"""Cordons a node: no new pod is placed on it; those on it stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_responder.action import StepState, register
from peerwatch_responder.actions.kubernetes.api import STRATEGIC
from peerwatch_responder.actions.kubernetes.node_step import NodeStep, undo_mark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from peerwatch_responder.action import ActionOptions, Before, Target
    from peerwatch_responder.actions.kubernetes.cluster import KubernetesCluster
    from peerwatch_responder.actions.kubernetes.node_step import Json

ID, REASON = "peerwatch/cordoned-by", "peerwatch/cordon-reason"


class _Cordon:
    name, verb, path, content_type = "cordon", "patch nodes", "", STRATEGIC

    def state_of(self, node: Mapping[str, Any], target: Target) -> StepState:
        annotations = _annotations(node)
        if not _is_cordoned(node):
            before = {name: annotations.get(name) for name in (ID, REASON)}
            return StepState("open", f"Node {target.node} is in use.", before)
        if annotations.get(ID) == target.key:
            return StepState("done", f"Node {target.node} is cordoned.")
        by = f"by response {annotations[ID]}" if annotations.get(ID) else "by somebody else"
        return StepState("other", f"Node {target.node} is cordoned {by}.")

    def change(self, node: Mapping[str, Any], target: Target) -> Json:
        marks = {ID: target.key, REASON: target.reason}
        return {"metadata": {"annotations": marks}, "spec": {"unschedulable": True}}

    def restore(self, node: Mapping[str, Any], target: Target, before: Before) -> Json | None:
        if _annotations(node).get(ID) != target.key:
            return None
        # null removes a field: a server leaves out what is false. Where a person has uncordoned the
        # node only our annotations are left.
        marks = {name: before.get(name) for name in (ID, REASON)}
        return {"metadata": {"annotations": marks}, "spec": {"unschedulable": None}}


@register(
    "kubernetes_cordon",
    "cordons a node: no new pod is placed on it",
    takes_out=True,
    cluster="kubernetes",
)
class KubernetesCordon:
    """Sets ``spec.unschedulable``, with the response's key as an annotation.

    Parameters
    ----------
    options
        None.
    cluster
        The cluster.
    """

    def __init__(self, options: ActionOptions, cluster: KubernetesCluster) -> None:
        self._api = cluster.api

    def steps(self, target: Target) -> Sequence[NodeStep]:
        """Return the one step there is."""
        return [NodeStep(self._api, _Cordon(), target)]

    def undo(self, target: Target, step: str, before: Before) -> str:
        """Uncordon the node if the mark is still ours; otherwise as ``Action.undo``."""
        return undo_mark(self._api, _Cordon(), target, before)


def _is_cordoned(node: Mapping[str, Any]) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


def _annotations(node: Mapping[str, Any]) -> Mapping[str, Any]:
    return node["metadata"].get("annotations") or {}
