"""Taints a node: pods that do not tolerate it are not placed there, or leave at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from peerwatch_responder.action import ActionOptions, StepState, register
from peerwatch_responder.actions.kubernetes.api import MERGE
from peerwatch_responder.actions.kubernetes.node_step import NodeStep, undo_mark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from peerwatch_responder.action import Before, Target
    from peerwatch_responder.actions.kubernetes.cluster import KubernetesCluster
    from peerwatch_responder.actions.kubernetes.node_step import Json

KEY = "peerwatch/faulty"


class TaintOptions(ActionOptions):
    """Settings of ``kubernetes_taint``."""

    effect: Literal["NoSchedule", "NoExecute"] = Field(
        default="NoSchedule",
        description="NoExecute also ends every pod on the node that does not tolerate the taint, "
        "of whichever job, without regard to disruption budgets.",
    )


class _Taint:
    name, verb, path, content_type = "taint", "patch nodes", "", MERGE

    def __init__(self, effect: str) -> None:
        self._effect = effect

    def state_of(self, node: Mapping[str, Any], target: Target) -> StepState:
        for each in taints_of(node):
            if self._is_ours(each):
                if each.get("value") == target.key:
                    return StepState("done", f"Node {target.node} is tainted.")
                by = each.get("value") or "nobody who is known"
                return StepState("other", f"Node {target.node} is tainted by response {by}.")
        return StepState("open", f"Node {target.node} has no taint {KEY}.")

    def change(self, node: Mapping[str, Any], target: Target) -> Json:
        ours = {"key": KEY, "value": target.key, "effect": self._effect}
        # A list is replaced as a whole; the resourceVersion guards those of others.
        return {"spec": {"taints": [*taints_of(node), ours]}}

    def restore(self, node: Mapping[str, Any], target: Target, before: Before) -> Json | None:
        taints = taints_of(node)
        others = [
            each for each in taints if not (self._is_ours(each) and each.get("value") == target.key)
        ]
        if len(others) == len(taints):
            return None
        return {"spec": {"taints": others or None}}

    def _is_ours(self, taint: Mapping[str, Any]) -> bool:
        # Kubernetes allows one taint of each key and effect.
        return taint.get("key") == KEY and taint.get("effect") == self._effect


@register(
    "kubernetes_taint",
    "taints a node: pods that do not tolerate it are not placed there, or leave",
    takes_out=True,
    options=TaintOptions,
    cluster="kubernetes",
)
class KubernetesTaint:
    """Adds a taint ``peerwatch/faulty`` whose value is the response's key.

    Parameters
    ----------
    options
        Its settings.
    cluster
        The cluster.
    """

    def __init__(self, options: TaintOptions, cluster: KubernetesCluster) -> None:
        self._mark = _Taint(options.effect)
        self._api = cluster.api

    def steps(self, target: Target) -> Sequence[NodeStep]:
        """Return the one step there is."""
        return [NodeStep(self._api, self._mark, target)]

    def undo(self, target: Target, step: str, before: Before) -> str:
        """Remove the taint if it is still ours; otherwise as ``Action.undo``."""
        return undo_mark(self._api, self._mark, target, before)


def taints_of(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a node's taints."""
    found = (node.get("spec") or {}).get("taints")
    return [each for each in found or () if isinstance(each, dict)]
