"""Sets a condition on a node, beside the kubelet's own, for other programs and people to see."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pydantic import Field

from peerwatch_responder.action import ActionOptions, StepState, register
from peerwatch_responder.actions.kubernetes.api import STRATEGIC
from peerwatch_responder.actions.kubernetes.node_step import NodeStep, undo_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from peerwatch_responder.action import Before, Target
    from peerwatch_responder.actions.kubernetes.cluster import KubernetesCluster
    from peerwatch_responder.actions.kubernetes.node_step import Json

_FIELDS = ("status", "reason", "message", "lastHeartbeatTime", "lastTransitionTime")
# How the reason of every response begins.
_OURS = "peerwatch: "


class ConditionOptions(ActionOptions):
    """Settings of ``kubernetes_condition``."""

    condition: str = Field(
        default="PeerwatchFault",
        pattern=r"^[A-Za-z][A-Za-z0-9]{0,62}$",
        description="The condition's type; True while the node is suspected.",
    )
    reason: str = Field(
        default="FaultyNode",
        pattern=r"^[A-Za-z][A-Za-z0-9]{0,62}$",
        description="Its reason, in one word.",
    )


class _Condition:
    name, verb, path, content_type = "condition", "patch nodes/status", "/status", STRATEGIC

    def __init__(self, options: ConditionOptions, clock: Callable[[], float]) -> None:
        self._options = options
        self._clock = clock

    def state_of(self, node: Mapping[str, Any], target: Target) -> StepState:
        kind = self._options.condition
        found = self._found(node)
        if found is None or found.get("status") != "True":
            return StepState("open", f"{kind} is not True.", {"condition": found})
        if found.get("message") == _message(target):
            return StepState("done", f"{kind} is True.")
        if str(found.get("message")).startswith(_OURS):
            # Of an earlier response, whose node a person has put back.
            return StepState(
                "open", f"{kind} is True by an earlier response.", {"condition": found}
            )
        return StepState("other", f"{kind} is True by somebody else.")

    def change(self, node: Mapping[str, Any], target: Target) -> Json:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))
        values = ("True", self._options.reason, _message(target), stamp, stamp)
        return self._patch(dict(zip(_FIELDS, values, strict=True)))

    def restore(self, node: Mapping[str, Any], target: Target, before: Before) -> Json | None:
        found = self._found(node)
        if found is None or found.get("message") != _message(target):
            return None
        earlier = before.get("condition")
        if earlier is None:
            return self._patch({"$patch": "delete"})
        # Fields that it did not have are null, which removes them.
        return self._patch({**dict.fromkeys(_FIELDS), **earlier})

    def _found(self, node: Mapping[str, Any]) -> Json | None:
        for each in (node.get("status") or {}).get("conditions") or ():
            if isinstance(each, dict) and each.get("type") == self._options.condition:
                return each
        return None

    def _patch(self, content: Json) -> Json:
        # The list is merged by type: nobody else's condition is touched.
        return {"status": {"conditions": [{**content, "type": self._options.condition}]}}


@register(
    "kubernetes_condition",
    "sets a condition on a node",
    takes_out=False,
    options=ConditionOptions,
    cluster="kubernetes",
)
class KubernetesCondition:
    """Sets a condition True, with a message that has the response's key.

    Parameters
    ----------
    options
        Its settings.
    cluster
        The cluster.
    clock
        Unix time in seconds.
    """

    def __init__(
        self,
        options: ConditionOptions,
        cluster: KubernetesCluster,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._mark = _Condition(options, clock)
        self._api = cluster.api

    def steps(self, target: Target) -> Sequence[NodeStep]:
        """Return the one step there is."""
        return [NodeStep(self._api, self._mark, target)]

    def undo(self, target: Target, step: str, before: Before) -> str:
        """Put back the condition that was there, or remove ours; otherwise as ``Action.undo``."""
        return undo_mark(self._api, self._mark, target, before)


def _message(target: Target) -> str:
    # A long reason may have lost its key.
    key = f"action={target.key}"
    return target.reason if key in target.reason else f"{target.reason} {key}"
