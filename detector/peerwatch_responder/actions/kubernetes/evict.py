"""Evicts the pods of the alert's job from its node, as their disruption budgets allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_responder.action import LaterError, RejectedError, StepState, register
from peerwatch_responder.actions.kubernetes.api import NOT_FOUND, StatusError, UnsureError
from peerwatch_responder.actions.kubernetes.node_step import confirmed, read_node
from peerwatch_responder.actions.kubernetes.pods import (
    Pod,
    PodOptions,
    names_pods,
    pod_of,
    pods_to_evict,
)
from peerwatch_responder.actions.kubernetes.taint import KEY, taints_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_responder.action import Before, Step, Target
    from peerwatch_responder.actions.kubernetes.api import Api
    from peerwatch_responder.actions.kubernetes.cluster import KubernetesCluster

# Chosen: a sixth of the 30 s that Kubernetes gives a pod to end by default.
_WAIT_SECONDS = 5.0
# Kubernetes 1.20 and older has no policy/v1; without a version it takes its own.
_NO_SUCH_VERSION = 'no kind "Eviction" is registered'
# It answers 500 to this for ever.
_TWO_BUDGETS = "more than one PodDisruptionBudget"


class EvictOptions(PodOptions):
    """Settings of ``kubernetes_evict``."""

    grace_seconds: int | None = Field(
        default=None,
        ge=1,
        le=86_400,
        description="How long pods have to end; unset: their own terminationGracePeriodSeconds.",
    )


class _Nobodys:
    """An alert does not say whose pods are meant: then none is."""

    name = "evict"

    def inspect(self) -> StepState:
        return StepState("other", "The alert does not say whose pods are to be evicted.")

    def do(self, before: Before) -> str:
        raise RejectedError(self.inspect().text)


@dataclass(frozen=True, slots=True)
class _PodStep:
    api: Api
    pod: Pod
    target: Target
    grace_seconds: int | None

    def found(self) -> Pod | None:
        """Return the pod as it is now; None: it is gone, or another one has its name."""
        answer = self.api.get("get pods", self.pod.path)
        now = pod_of(answer) if answer is not None else None
        return now if now is not None and now.uid == self.pod.uid else None


class _Evict(_PodStep):
    @property
    def name(self) -> str:
        return f"evict {self.pod} {self.pod.uid}"

    def inspect(self) -> StepState:
        now = self.found()
        if now is None:
            return StepState("done", f"Pod {self.pod} is gone.")
        if now.is_leaving:
            return StepState("done", f"Pod {self.pod} is ending.")
        return StepState("open", f"Pod {self.pod} runs.", {"uid": self.pod.uid})

    def do(self, before: Before) -> str:
        found = self.inspect()
        if found.status == "done":
            return found.text
        self._is_still_ours()
        try:
            self._send()
        except UnsureError as error:
            if _TWO_BUDGETS in str(error):
                raise RejectedError(f"Pod {self.pod}: {error}") from error
            return confirmed(self.api, self.inspect, error)
        except LaterError as error:
            raise LaterError(f"Pod {self.pod}: {error}", error.seconds) from error
        except StatusError as error:
            if error.status == NOT_FOUND:
                return f"Pod {self.pod} is gone."
            raise
        return "201"

    def _is_still_ours(self) -> None:
        """Refuse where a person has put the node back, or where its pods would just come again."""
        node = read_node(self.api, self.target.node)
        if node is None or (node.get("spec") or {}).get("unschedulable"):
            return
        if any(
            (each.get("key"), each.get("value")) == (KEY, self.target.key)
            for each in taints_of(node)
        ):
            return
        raise RejectedError(
            f"Node {self.target.node} takes new pods: a person has put it back, or no action "
            "before this one has cordoned or tainted it."
        )

    def _send(self) -> None:
        options: dict[str, object] = {"preconditions": {"uid": self.pod.uid}}
        if self.grace_seconds is not None:
            options["gracePeriodSeconds"] = self.grace_seconds
        body: dict[str, object] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": self.pod.name, "namespace": self.pod.namespace},
            "deleteOptions": options,
        }
        path = f"{self.pod.path}/eviction"
        try:
            self.api.send("create pods/eviction", "POST", path, body)
        except StatusError as error:
            if _NO_SUCH_VERSION not in str(error):
                raise
            del body["apiVersion"]
            self.api.send("create pods/eviction", "POST", path, body)


class _WaitFor(_PodStep):
    """A pod that was evicted has its grace period to end: until then its GPUs are not free."""

    @property
    def name(self) -> str:
        return f"wait for {self.pod} {self.pod.uid}"

    def inspect(self) -> StepState:
        if self.found() is None:
            return StepState("done", f"Pod {self.pod} is gone.")
        return StepState("open", f"Pod {self.pod} is ending.")

    def do(self, before: Before) -> str:
        found = self.inspect()
        if found.status == "done":
            return found.text
        raise LaterError(f"Pod {self.pod} has not ended yet.", _WAIT_SECONDS)


@register(
    "kubernetes_evict",
    "evicts the pods of the alert's job from its node",
    takes_out=False,
    options=EvictOptions,
    cluster="kubernetes",
)
class KubernetesEvict:
    """Evicts pod by pod, and waits until they are gone; after an action that cordons or taints.

    A disruption budget that forbids it is waited for, and the pod named that it kept.

    Parameters
    ----------
    options
        Its settings.
    cluster
        The cluster.
    """

    def __init__(self, options: EvictOptions, cluster: KubernetesCluster) -> None:
        self._options = options
        self._api = cluster.api

    def steps(self, target: Target) -> Sequence[Step]:
        """Return a step for each pod that is there, and one that waits for it; none: none is."""
        if not names_pods(self._options, target):
            return [_Nobodys()]
        grace = self._options.grace_seconds
        pods = list(pods_to_evict(self._api, self._options, target))
        evictions = [_Evict(self._api, pod, target, grace) for pod in pods]
        waits = [_WaitFor(self._api, pod, target, grace) for pod in pods]
        return [*evictions, *waits]

    def undo(self, target: Target, step: str, before: Before) -> str:
        """Leave it: whoever made the pods makes new ones."""
        return "a pod that was evicted is made anew by its owner"
