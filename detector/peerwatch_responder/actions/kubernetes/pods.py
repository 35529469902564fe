"""Which pods on a node may be evicted: those of the alert's job, and none that must stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from pydantic import Field, field_validator

from peerwatch_common.pod_names import PodNaming
from peerwatch_common.settings.pod_names import check_naming
from peerwatch_responder.action import ActionOptions
from peerwatch_responder.actions.kubernetes.node_step import MANAGED_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from peerwatch_responder.action import Target
    from peerwatch_responder.actions.kubernetes.api import Api

# The kubelet's copy of a pod that it runs from a file: evicting the copy ends nothing.
_MIRROR = "kubernetes.io/config.mirror"
_SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_ENDED = {"Succeeded", "Failed"}


class PodOptions(ActionOptions):
    """Which pods are the alert's job's."""

    pods_by: Literal["job_id", "label", "pod"] = Field(
        default="job_id",
        description="job_id: those whose name gives the alert's job_id. label: those that have it "
        "as a label. pod: the one that the alert names by its labels namespace and pod.",
    )
    kubernetes_job_id: str = Field(
        default="job",
        description="How the job of a pod is known from its name, as jobs.kubernetes_job_id of the "
        "exporter.",
    )
    label: str = Field(
        default="",
        max_length=317,
        validate_default=True,
        description="The pods' label that has the job_id, or what follows its last slash; needed "
        "with pods_by: label.",
    )
    protected_namespaces: tuple[str, ...] = Field(
        default=("kube-system", "kube-public", "kube-node-lease"),
        description="Nothing is evicted there.",
    )

    @field_validator("kubernetes_job_id")
    @classmethod
    def _names_a_job(cls, setting: str) -> str:
        return check_naming(setting)

    @field_validator("label")
    @classmethod
    def _is_a_label(cls, setting: str, info: Any) -> str:  # noqa: ANN401 - pydantic's
        if info.data.get("pods_by") == "label" and not setting:
            raise ValueError("is empty; pods_by: label needs it")
        return setting


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod.

    Parameters
    ----------
    namespace, name, uid
        What tells it from every other.
    is_leaving
        Whether it is being ended already.
    """

    namespace: str
    name: str
    uid: str
    is_leaving: bool

    @property
    def path(self) -> str:
        """Its address."""
        return (
            f"/api/v1/namespaces/{quote(self.namespace, safe='')}/pods/{quote(self.name, safe='')}"
        )

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def pod_of(found: Mapping[str, Any]) -> Pod:
    """Return a pod as the API server describes it."""
    metadata = found.get("metadata") or {}
    return Pod(
        str(metadata.get("namespace")),
        str(metadata.get("name")),
        str(metadata.get("uid")),
        metadata.get("deletionTimestamp") is not None,
    )


def pods_to_evict(api: Api, options: PodOptions, target: Target) -> Iterator[Pod]:
    """Yield the pods of the target's job on its node which may be evicted, by name.

    Raises
    ------
    UnknownError
        If they could not be learnt.
    """
    query = {"fieldSelector": f"spec.nodeName={target.node}"}
    naming = PodNaming(options.kubernetes_job_id)
    found = [
        pod_of(each)
        for each in api.list("list pods", "/api/v1/pods", query)
        # Also where a server does not know the selector.
        if (each.get("spec") or {}).get("nodeName") == target.node
        and _is_of_job(each, options, naming, target)
        and not _must_stay(each, options)
    ]
    yield from sorted(found, key=lambda pod: (pod.namespace, pod.name))


def names_pods(options: PodOptions, target: Target) -> bool:
    """Whether the alert says whose pods are meant."""
    if options.pods_by == "pod":
        return bool(target.labels.get("namespace") and target.labels.get("pod"))
    return bool(target.job_id)


def _is_of_job(
    found: Mapping[str, Any], options: PodOptions, naming: PodNaming, target: Target
) -> bool:
    pod = pod_of(found)
    if options.pods_by == "pod":
        return (pod.namespace, pod.name) == (target.labels["namespace"], target.labels["pod"])
    if options.pods_by == "label":
        # Labels cannot have the slash of <namespace>/<job>.
        value = (found["metadata"].get("labels") or {}).get(options.label)
        return value is not None and value in {target.job_id, target.job_id.rpartition("/")[2]}
    return naming.job_id(pod.namespace, pod.name) == target.job_id


def _must_stay(found: Mapping[str, Any], options: PodOptions) -> bool:
    metadata = found["metadata"]
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    owners = metadata.get("ownerReferences") or ()
    return (
        metadata.get("namespace") in options.protected_namespaces
        or any(each.get("kind") == "DaemonSet" for each in owners)
        or _MIRROR in annotations
        or annotations.get(_SAFE_TO_EVICT) == "false"
        or labels.get(MANAGED_LABEL) == "false"
        or (found.get("status") or {}).get("phase") in _ENDED
    )
