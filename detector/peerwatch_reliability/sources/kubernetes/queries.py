"""What Prometheus is asked for: kube-state-metrics' series of a day.

A series of a pod ends soon after the pod is deleted, so each is asked for its last value within the
day. How often a container began and ended within it is read from where its times change; times that
change twice within a minute are seen once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.promql import any_of, in_one, selected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_POD = "namespace, pod, uid"
_JOB = "namespace, job_name"
# How often a node's state is looked at, in seconds: Prometheus' default interval.
NODE_STEP = 60.0


class Queries:
    """The queries of a span of time, which ends when each is evaluated.

    Parameters
    ----------
    selector
        Label matchers of kube-state-metrics' series; empty: all.
    resources
        Names of what a pod must request to be read, as Kubernetes spells them.
    seconds
        The span.
    """

    def __init__(self, selector: str, resources: Sequence[str], seconds: float) -> None:
        self._selector = selector
        self._span = f"[{seconds:.0f}s]"
        self._minutes = f"[{seconds:.0f}s:1m]"
        # As kube-state-metrics writes them: every character that a label's name cannot have is _.
        names = (
            "".join(c if c.isascii() and c.isalnum() else "_" for c in each) for each in resources
        )
        self._requested = "kube_pod_container_resource_requests", any_of("resource", names)

    def facts(self) -> str:
        """Return the query for what is known of pods and jobs; its label kind says what it is."""
        requested = self._last(*self._requested)
        controller = 'owner_is_controller="true"'
        timeouts = 'reason="DeadlineExceeded"'
        seen = f"max_over_time(timestamp({self._series('kube_pod_info')}){self._minutes})"
        cover = f"count_over_time(count({self._series('kube_node_info')}){self._minutes}) * 60"
        foreign = self._last("kube_pod_info", 'exported_pod!=""')
        parts = {
            "gpus": f"sum by ({_POD}, container) "
            f"(max by ({_POD}, container, resource) ({requested}))",
            "info": self._of_pod("kube_pod_info", "node"),
            "owner": self._of_pod("kube_pod_owner", "owner_kind", "owner_name", where=controller),
            "created": self._of_pod("kube_pod_created"),
            "start": self._of_pod("kube_pod_start_time"),
            "completion": self._of_pod("kube_pod_completion_time"),
            "deletion": self._of_pod("kube_pod_deletion_timestamp"),
            "phase": f"{self._of_pod('kube_pod_status_phase', 'phase')} == 1",
            "reason": f"{self._of_pod('kube_pod_status_reason', 'reason')} == 1",
            "disruption": f"{self._of_pod('kube_pod_status_disruption_reason', 'reason')} == 1",
            "terminated": self._terminated(),
            "seen": f"max by ({_POD}) ({seen} and on (uid) {requested})",
            # One may be deleted and made anew within the day.
            "job_first": f"min by ({_JOB}) "
            f"(min_over_time({self._series('kube_job_created')}{self._span}))",
            "job_created": f"max by ({_JOB}) ({self._last('kube_job_created')})",
            "job_owner": f"max by ({_JOB}, owner_kind, owner_name) "
            f"({self._last('kube_job_owner', controller)})",
            "job_timeout": f"max by ({_JOB}) ({self._last('kube_job_status_failed', timeouts)})"
            " == 1",
            "cover": cover,
            "foreign": f"count({foreign})",
        }
        return in_one("kind", parts)

    def starts(self) -> str:
        """Return the query for when containers began, each at the minute at which it was new."""
        return self._new(self._started)

    def ends(self) -> str:
        """Return the query for when containers that began again had ended, and why."""
        return self._new(self._ended)

    def nodes(self) -> str:
        """Return the query for when nodes were cordoned or not ready."""
        ready = self._series("kube_node_status_condition", 'condition="Ready"', 'status="true"')
        cordoned = self._series("kube_node_spec_unschedulable")
        parts = {
            "not_ready": f"max by (node) ({ready}) == 0",
            "cordoned": f"max by (node) ({cordoned}) == 1",
        }
        return f"({in_one('kind', parts)}){self._minutes}"

    def _new(self, query: Callable[[str], str]) -> str:
        """Return where a value differs from that of a minute ago, or there was none."""
        now, before = f"({query('')})", f"({query(' offset 1m')})"
        requested = self._series(*self._requested)
        return f"(({now} unless ({now} == {before})) and on (uid) {requested}){self._minutes}"

    def _started(self, offset: str) -> str:
        return (
            f"max by ({_POD}, container) "
            f"({self._series('kube_pod_container_state_started')}{offset})"
        )

    def _ended(self, offset: str) -> str:
        ended = self._series("kube_pod_container_status_last_terminated_timestamp")
        reason = self._series("kube_pod_container_status_last_terminated_reason")
        return (
            f"max by ({_POD}, container, reason) ({reason}{offset} == 1) "
            f"* on ({_POD}, container) group_left () max by ({_POD}, container) ({ended}{offset})"
        )

    def _terminated(self) -> str:
        """Return when containers were last seen ended, by why; 1 if too short for a minute."""
        name = "kube_pod_container_status_terminated_reason"
        kept, series = f"{_POD}, container, reason", self._series(name)
        seen = f"max_over_time((timestamp({series}) and {series} == 1){self._minutes})"
        requested = self._last(*self._requested)
        return (
            f"(max by ({kept}) ({seen} and on (uid) {requested}) "
            f"or {self._of_pod(name, 'container', 'reason')} == 1)"
        )

    def _of_pod(self, name: str, *labels: str, where: str = "") -> str:
        kept = ", ".join((_POD, *labels))
        requested = self._last(*self._requested)
        return f"max by ({kept}) ({self._last(name, where)} and on (uid) {requested})"

    def _last(self, name: str, *where: str) -> str:
        return f"last_over_time({self._series(name, *where)}{self._span})"

    def _series(self, name: str, *where: str) -> str:
        return selected(name, self._selector, *where)
