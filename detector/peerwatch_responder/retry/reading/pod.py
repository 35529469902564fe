"""Reads the logs of a pod's containers: from the API server, or from the node's own folder.

The kubelet lays them out as ``<namespace>_<pod>_<uid>/<container>/<restarts>.log``. Of a container
that was started again the run before is the one that failed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from peerwatch_common.pod_names import PodNaming
from peerwatch_responder.action import UnknownError
from peerwatch_responder.retry.reading.bounded import LARGEST, TOTAL_BYTES
from peerwatch_responder.retry.reading.facts import JobFacts
from peerwatch_responder.retry.reading.files import LogError, read_log
from peerwatch_responder.retry.reading.log_text import LogText

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from peerwatch_responder.actions.kubernetes.api import Api

_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_LOG = re.compile(r"(\d{1,9})\.log")
# The API server's tail; of a flood of lines it is cut by bytes as well. Chosen: the 14 MiB of
# ``Bound.tail_bytes`` in lines of 150 bytes.
_TAIL_LINES = 100_000


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod's logs, and what Kubernetes says of its end."""

    logs: tuple[LogText, ...]
    facts: JobFacts


def split_name(text: str) -> tuple[str, str]:
    """Return namespace and name of ``NAMESPACE/POD``; the namespace is ``default`` without one.

    Raises
    ------
    LogError
        If it is no name.
    """
    namespace, slash, name = text.rpartition("/")
    namespace = namespace if slash else "default"
    if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(name)):
        raise LogError(f"--pod {text[:200]!r}: is no NAMESPACE/POD")
    return namespace, name


def pod_of_api(
    api: Api, text: str, job_id_rule: str = "job", most_bytes: int = LARGEST.tail_bytes
) -> Pod:
    """Return a pod as the API server knows it.

    Parameters
    ----------
    api
        The server.
    text
        ``NAMESPACE/POD``.
    job_id_rule
        How a pod's name gives the job's, as ``kubernetes_job_id``.
    most_bytes
        How much of the end of each container's log is kept.

    Raises
    ------
    LogError, UnknownError
        If there is no such pod, or the server does not answer.
    """
    namespace, name = split_name(text)
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    content = api.get("get pods", path)
    if content is None:
        raise LogError(f"--pod {text}: there is no such pod")
    failed = {
        str(each.get("name")): _failed_run(each)[0]
        for each in _statuses(_mapping(content.get("status")))
    }
    facts = facts_of(content, namespace, name, job_id_rule)
    logs = []
    containers = _containers(content)
    # Where a container that sets up the pod failed, the others have not begun.
    first = [name for name, run in failed.items() if run and name not in containers]
    for container in (*first, *containers):
        previous = failed.get(container) == "lastState"
        query = {"container": container, "tailLines": str(_TAIL_LINES)}
        query |= {"previous": "true"} if previous else {}
        try:
            said = api.text("get pods/log", f"{path}/log", query, most_bytes)
        except UnknownError as error:
            logs.append(LogText(f"{text}/{container}", b""))
            facts = replace(facts, notes=(*facts.notes, str(error)))
            continue
        node = facts.nodes[0] if facts.nodes else ""
        logs.append(LogText(f"{text}/{container}", said, node=node))
    return Pod(tuple(logs), facts)


def pod_of_folder(folder: Path, text: str, job_id_rule: str = "job") -> Pod:
    """Return a pod as its node has it; arguments as ``pod_of_api``.

    Raises
    ------
    LogError
        If the node has no logs of such a pod.
    """
    namespace, name = split_name(text)
    try:
        found = sorted(
            (each for each in folder.iterdir() if each.name.startswith(f"{namespace}_{name}_")),
            key=lambda each: each.stat().st_mtime,
        )
        paths = list(_newest_logs(found[-1].iterdir())) if found else []
    except OSError as error:
        raise LogError(f"{folder}: cannot be read: {error.strerror}") from error
    if not paths:
        raise LogError(f"{folder}: has no logs of pod {text}")
    bound = LARGEST.shared(len(paths), TOTAL_BYTES)
    logs = []
    for path in paths:
        try:
            logs.append(read_log(path, bound))
        except OSError as error:
            raise LogError(f"{path}: cannot be read: {error.strerror}") from error
    job_id = PodNaming(job_id_rule).job_id(namespace, name)
    return Pod(tuple(logs), JobFacts(job=job_id, job_id=job_id))


def facts_of(content: Mapping[str, Any], namespace: str, name: str, rule: str) -> JobFacts:
    """Return what a pod's object says of its end."""
    status = _mapping(content.get("status"))
    spec = _mapping(content.get("spec"))
    job_id = PodNaming(rule).job_id(namespace, name)
    node = str(spec.get("nodeName") or "")
    failed = [ended for each in _statuses(status) if (ended := _failed_run(each)[1])]
    # A sidecar is stopped once the job's own container has ended; its name may come before.
    first = min(failed, key=lambda each: str(each.get("finishedAt") or "~")) if failed else {}
    code = first.get("exitCode")
    # The first that says more than that it ended: of the pod, its container, its disruption.
    told = [each for each in (status, first, _disruption(status)) if _reason(each)]
    reason = _reason(told[0]) if told else ""
    message = str((told[0] if told else first).get("message") or "")
    said = f"phase {status.get('phase')}, reason {reason or 'none'}, exit code {code}: {message}"
    restarts = sum(int(each.get("restartCount") or 0) for each in _statuses(status))
    return JobFacts(
        job=job_id,
        job_id=job_id,
        attempt=f"{_mapping(content.get('metadata')).get('uid', '')}-{restarts}",
        exit_code=code if isinstance(code, int) else None,
        reason=reason,
        message=message,
        nodes=(node,) if node else (),
        source=f"pod {namespace}/{name}",
        text=said[:500].rstrip(": "),
    )


def _reason(said: Mapping[str, Any]) -> str:
    """Return a reason; empty: none, or Kubernetes' word for any exit code, which says nothing."""
    reason = str(said.get("reason") or "")
    return "" if reason in {"Error", "Completed"} else reason


def _disruption(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the condition that says why the cluster ended a pod; empty: it did not."""
    rows = status.get("conditions")
    for each in rows if isinstance(rows, list) else ():
        row = _mapping(each)
        if row.get("type") == "DisruptionTarget" and row.get("status") == "True":
            return row
    return {}


def _failed_run(status: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return which run of a container failed, its last one first, and how; empty: none did."""
    for run in ("state", "lastState"):
        ended = _mapping(_mapping(status.get(run)).get("terminated"))
        if ended.get("exitCode"):
            return run, ended
    return "", {}


def _statuses(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for name in ("initContainerStatuses", "containerStatuses"):
        rows = status.get(name)
        found += [each for each in rows if isinstance(each, dict)] if isinstance(rows, list) else []
    return found


def _containers(content: Mapping[str, Any]) -> list[str]:
    rows = _mapping(content.get("spec")).get("containers")
    return [str(each["name"]) for each in rows or () if isinstance(each, dict) and "name" in each]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _newest_logs(containers: Iterable[Path]) -> Iterable[Path]:
    for container in sorted(containers):
        if container.is_dir():
            logs = [each for each in container.iterdir() if _LOG.fullmatch(each.name)]
            if logs:
                yield max(logs, key=lambda path: int(path.stem))
