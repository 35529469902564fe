"""What kube-state-metrics exposes of pods, jobs and nodes whose lives are told, as OpenMetrics.

Names and labels are those of kube-state-metrics v2.20 (its docs/metrics), the moment at which a
series begins and ends is that of its object.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

# A container that ended is shown so until the kubelet waits to begin it again.
_ENDED_SECONDS = 60


@dataclass
class KubePod:
    """The life of a pod in seconds since the history's begin; ``gone``: when it was deleted.

    ``runs`` holds begin, end and reason of its container's runs; an end of None: it still runs.
    """

    name: str
    node: str
    owner: tuple[str, str] = ("PyTorchJob", "train")
    namespace: str = "ml"
    created: float = 0.0
    bound: float | None = None
    runs: tuple[tuple[float, float | None, str], ...] = ()
    phase: str = ""
    reason: str = ""
    disruption: str = ""
    deletion: float | None = None
    gone: float | None = None
    gpus: int = 8
    uid: str = ""

    def series(self, now):
        """Yield name, labels and value of its series at a time."""
        if now < self.created or (self.gone is not None and now >= self.gone):
            return
        uid = self.uid or f"{self.name}-{self.created:g}"
        pod = {"namespace": self.namespace, "pod": self.name, "uid": uid}
        bound = self.bound if self.bound is not None else self.created
        node = self.node if now >= bound else ""
        kind, name = self.owner
        yield "kube_pod_info", {**pod, "node": node, "created_by_kind": kind}, 1
        controller = {"owner_kind": kind, "owner_name": name}
        yield "kube_pod_owner", {**pod, **controller, "owner_is_controller": "true"}, 1
        yield "kube_pod_created", pod, ("time", self.created)
        if self.gpus:
            resource = {"container": "main", "resource": "nvidia_com_gpu", "unit": "integer"}
            labels = {**pod, **resource, "node": node}
            yield "kube_pod_container_resource_requests", labels, self.gpus
        cpu = {"container": "sidecar", "resource": "cpu", "unit": "core", "node": node}
        yield "kube_pod_container_resource_requests", {**pod, **cpu}, 1
        begun = [each for each in self.runs if each[0] <= now]
        is_over = bool(self.phase) and begun and begun[-1][1] is not None and now >= begun[-1][1]
        phase = self.phase if is_over else "Running" if begun else "Pending"
        for each in ("Pending", "Running", "Succeeded", "Failed", "Unknown"):
            yield "kube_pod_status_phase", {**pod, "phase": each}, int(each == phase)
        if self.deletion is not None and now >= self.deletion - 30:
            yield "kube_pod_deletion_timestamp", pod, ("time", self.deletion)
            if self.disruption:
                reason = {"reason": self.disruption}
                yield "kube_pod_status_disruption_reason", {**pod, **reason}, 1
        if begun:
            yield "kube_pod_start_time", pod, ("time", self.runs[0][0] - 5)
            yield from self._container({**pod, "container": "main"}, begun, now, is_over)
        if is_over:
            yield "kube_pod_completion_time", pod, ("time", begun[-1][1])
            if self.reason:
                yield "kube_pod_status_reason", {**pod, "reason": self.reason}, 1

    def _container(self, labels, begun, now, is_over):
        start, end, reason = begun[-1]
        before = begun[:-1]
        if end is None or now < end or is_over:
            yield "kube_pod_container_state_started", labels, ("time", start)
        else:
            before = begun
        # Until the kubelet begins it again, it is seen as ended.
        if is_over or (end is not None and end <= now < end + _ENDED_SECONDS):
            labels_of = {**labels, "reason": reason}
            yield "kube_pod_container_status_terminated_reason", labels_of, 1
        yield "kube_pod_container_status_restarts_total", labels, len(before)
        if before:
            _, last, why = before[-1]
            yield "kube_pod_container_status_last_terminated_timestamp", labels, ("time", last)
            reasons = {**labels, "reason": why}
            yield "kube_pod_container_status_last_terminated_reason", reasons, 1


@dataclass
class KubeJob:
    """The life of a Job."""

    name: str
    created: float = 0.0
    gone: float | None = None
    owner: tuple[str, str] = ("", "")
    namespace: str = "ml"

    def series(self, now):
        """Yield name, labels and value of its series at a time."""
        if now < self.created or (self.gone is not None and now >= self.gone):
            return
        job = {"namespace": self.namespace, "job_name": self.name}
        kind, name = self.owner
        controller = {"owner_kind": kind, "owner_name": name}
        of = {"owner_is_controller": "true" if kind else ""}
        yield "kube_job_created", job, ("time", self.created)
        yield "kube_job_owner", {**job, **controller, **of}, 1


@dataclass
class KubeNode:
    """The life of a node: spans for which it was not ready, or cordoned."""

    name: str
    not_ready: tuple[tuple[float, float], ...] = ()
    cordoned: tuple[tuple[float, float], ...] = ()

    def series(self, now):
        """Yield name, labels and value of its series at a time."""
        node = {"node": self.name}
        is_lost = any(a <= now < b for a, b in self.not_ready)
        yield "kube_node_info", {**node, "kernel_version": "6.1"}, 1
        for status in ("true", "false", "unknown"):
            labels = {**node, "condition": "Ready", "status": status}
            value = int(status == ("unknown" if is_lost else "true"))
            yield "kube_node_status_condition", labels, value
        is_cordoned = any(a <= now < b for a, b in self.cordoned)
        yield "kube_node_spec_unschedulable", node, int(is_cordoned)


def openmetrics(objects, begin, seconds, step=30):
    """Yield the lines of a history that begins at a Unix time."""
    families = defaultdict(lambda: defaultdict(list))
    for now in range(0, seconds + 1, step):
        for each in objects:
            for name, labels, value in each.series(now):
                number = begin + value[1] if isinstance(value, tuple) else value
                text = ",".join(f'{key}="{labels[key]}"' for key in labels)
                families[name][text].append(f"{name}{{{text}}} {number} {begin + now}")
    for name, series in sorted(families.items()):
        is_counter = name.endswith("_total")
        kind = "counter" if is_counter else "gauge"
        yield f"# TYPE {name.removesuffix('_total')} {kind}"
        for lines in series.values():
            yield from lines
    yield "# EOF"
