"""An API server on loopback, as far as the responder asks one; held against recorded answers.

It enforces rights, preconditions of uid and resourceVersion, and disruption budgets, merges patches
as Kubernetes does, and can fail as told: before or after it has acted.
"""

from __future__ import annotations

import contextlib
import copy
import http.server
import json
import socket
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

TOKEN = "a-token"
STAMP = "2026-11-21T01:40:34Z"
# What the responder may do, and nothing else; the chart's ClusterRole is held against it.
RULES = (
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
)
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"

Json = dict[str, Any]


class RefusedError(Exception):
    """An answer other than success."""

    def __init__(self, status: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.content = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            **({"details": details} if details else {}),
            "code": status,
        }


class FakeKubernetes:
    """The state of a cluster, and what was asked of it.

    Parameters
    ----------
    rules
        Rights, as in a ClusterRole; None: all.
    versions
        Versions of ``policy`` that it knows.
    """

    def __init__(self, rules: Any = RULES, versions: tuple[str, ...] = ("v1", "v1beta1")) -> None:
        self.rules = rules
        self.versions = versions
        self.nodes: dict[str, Json] = {}
        self.pods: dict[tuple[str, str], Json] = {}
        self.budgets: dict[tuple[str, str], Json] = {}
        self.events: dict[str, Json] = {}
        self.acted: list[str] = []
        self.asked: list[tuple[str, str, str, bytes]] = []
        # Method and path give how it fails: cut or a status, perhaps with a text, before it acts;
        # act_cut, act_500, half or late after that.
        self.fault: Callable[[str, str], Any] = lambda _method, _path: None
        # Whether pods have a grace period, or end at once.
        self.is_graceful = True
        # Answers that are late come when this is set.
        self.released = threading.Event()
        self.lock = threading.RLock()
        self._version = 300

    def node(self, name: str, labels: Json | None = None, **spec: Any) -> Json:
        """Add a node and return it."""
        metadata = {
            "name": name,
            "uid": f"uid-of-{name}",
            "creationTimestamp": STAMP,
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
        }
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}
        kept = {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": spec}
        self.nodes[name] = {**kept, "status": {"conditions": [ready]}}
        return self._stored(self.nodes[name])

    def pod(self, name: str, node: str, namespace: str = "ml", **metadata: Any) -> Json:
        """Add a running pod and return it."""
        kept = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}", **metadata}
        pod = {"metadata": kept, "spec": {"nodeName": node}, "status": {"phase": "Running"}}
        self.pods[namespace, name] = pod
        return self._stored(pod)

    def ended(self) -> None:
        """Let all pods that are ending be gone."""
        for key, pod in list(self.pods.items()):
            if "deletionTimestamp" in pod["metadata"]:
                del self.pods[key]

    def plain(self, name: str) -> str:
        """Return a node as text, without what every change moves."""
        found = copy.deepcopy(self.nodes[name])
        del found["metadata"]["resourceVersion"]
        return json.dumps(found, sort_keys=True)

    def answer(self, method: str, address: str, headers: Mapping[str, str], body: bytes) -> Any:
        """Return status and content of an answer."""
        parts = urlsplit(address)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        with self.lock:
            content_type = headers.get("Content-Type", "")
            self.asked.append((method, address, content_type, body))
            if headers.get("Authorization") != f"Bearer {TOKEN}":
                return 401, RefusedError(401, "Unauthorized", "Unauthorized").content
            try:
                content = json.loads(body) if body else None
                return self._routed(method, parts.path, query, content_type, content)
            except RefusedError as error:
                return error.status, error.content

    def _routed(
        self, method: str, path: str, query: Mapping[str, str], content_type: str, content: Any
    ) -> tuple[int, Json]:
        match [unquote(each) for each in path.strip("/").split("/")], method:
            case ["api", "v1", "nodes"], "GET":
                self._may("list", "nodes")
                return 200, self._listed("NodeList", list(self.nodes.values()), query)
            case ["api", "v1", "nodes", name], "GET":
                self._may("get", "nodes")
                return 200, self._existing(self.nodes, name, "nodes")
            case ["api", "v1", "nodes", name, *rest], "PATCH" | "PUT":
                resource = "/".join(("nodes", *rest))
                self._may(method.lower().replace("put", "update"), resource)
                return 200, self._changed(name, rest == ["status"], content_type, content)
            case ["api", "v1", "pods"], "GET":
                self._may("list", "pods")
                return 200, self._listed("PodList", list(self.pods.values()), query)
            case ["api", "v1", "namespaces", namespace, "pods", name], "GET":
                self._may("get", "pods")
                return 200, self._existing(self.pods, (namespace, name), "pods")
            case ["api", "v1", "namespaces", namespace, "pods", name, "eviction"], "POST":
                self._may("create", "pods/eviction")
                return self._evicted(namespace, name, content, query)
            case ["api", "v1", "namespaces", _, "events"], "POST":
                self._may("create", "events")
                return 201, self._event(content)
            case ["apis", "policy", _, "namespaces", space, "poddisruptionbudgets", name], "DELETE":
                self._may("delete", "poddisruptionbudgets")
                self.budgets.pop((space, name))
                return 200, {"kind": "Status", "status": "Success"}
        raise RefusedError(404, "NotFound", "the server could not find the requested resource")

    def _may(self, verb: str, resource: str) -> None:
        if self.rules is None or any(
            resource in each["resources"] and verb in each["verbs"] for each in self.rules
        ):
            return
        text = f'{resource} is forbidden: User "responder" cannot {verb} resource "{resource}"'
        raise RefusedError(403, "Forbidden", text)

    def _existing(self, kept: Any, key: Any, kind: str) -> Json:
        if key not in kept:
            name = key if isinstance(key, str) else key[1]
            details = {"name": name, "kind": kind}
            raise RefusedError(404, "NotFound", f'{kind} "{name}" not found', details)
        return kept[key]

    def _listed(self, kind: str, items: list[Json], query: Mapping[str, str]) -> Json:
        for selector in filter(None, query.get("labelSelector", "").split(",")):
            name, _, value = selector.partition("=")
            items = [
                each for each in items if each["metadata"].get("labels", {}).get(name) == value
            ]
        if "fieldSelector" in query:
            node = query["fieldSelector"].removeprefix("spec.nodeName=")
            items = [each for each in items if each["spec"]["nodeName"] == node]
        start, limit = int(query.get("continue", 0)), int(query.get("limit", 0)) or len(items)
        metadata = {"resourceVersion": str(self._version)}
        if start + limit < len(items):
            metadata["continue"] = str(start + limit)
        return {
            "kind": kind,
            "apiVersion": "v1",
            "metadata": metadata,
            "items": items[start : start + limit],
        }

    def _changed(self, name: str, is_status: bool, content_type: str, content: Any) -> Json:
        node = self._existing(self.nodes, name, "nodes")
        if content_type == "application/json-patch+json":
            # Only what was recorded: a test that fails.
            assert content[0]["op"] == "test"
            assert content[0]["value"] != node["metadata"]["resourceVersion"]
            text = "the server rejected our request due to an error in our request"
            raise RefusedError(422, "Invalid", text, {})
        for field in ("uid", "resourceVersion"):
            wanted = content.get("metadata", {}).get(field)
            if wanted is not None and wanted != node["metadata"][field]:
                text = (
                    f'Operation cannot be fulfilled on nodes "{name}": the object has been '
                    "modified; please apply your changes to the latest version and try again"
                )
                raise RefusedError(409, "Conflict", text, {"name": name, "kind": "nodes"})
        strategic = content_type == "application/strategic-merge-patch+json"
        changed = merged(node, content, strategic=strategic)
        # A subresource changes its own part only.
        other = "spec" if is_status else "status"
        changed[other] = copy.deepcopy(node[other])
        _without_defaults(changed)
        _controlled(changed)
        if changed != node:
            self.nodes[name] = self._stored(changed)
            self.acted.append(f"patch {name}{'/status' if is_status else ''}")
        return self.nodes[name]

    def _evicted(
        self, namespace: str, name: str, content: Json, query: Mapping[str, str]
    ) -> tuple[int, Json]:
        version = content.get("apiVersion", "policy/v1beta1").removeprefix("policy/")
        if version not in self.versions:
            text = (
                f'Eviction in version "{version}" cannot be handled as a Eviction: no kind '
                f'"Eviction" is registered for version "policy/{version}" in scheme'
            )
            raise RefusedError(400, "BadRequest", text)
        pod = self._existing(self.pods, (namespace, name), "pods")
        options = content.get("deleteOptions", {})
        wanted = options.get("preconditions", {}).get("uid")
        if wanted not in {None, pod["metadata"]["uid"]}:
            text = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: other"
            raise RefusedError(409, "Conflict", text)
        for (space, budget), spec in self.budgets.items():
            if space == namespace and spec["healthy"] <= spec["needed"]:
                text = (
                    f"The disruption budget {budget} needs {spec['needed']} healthy pods and has "
                    f"{spec['healthy']} currently"
                )
                causes = {"causes": [{"reason": "DisruptionBudget", "message": text}]}
                text = "Cannot evict pod as it would violate the pod's disruption budget."
                raise RefusedError(429, "TooManyRequests", text, causes)
        is_dry = "dryRun" in query or "dryRun" in options
        if not is_dry and "deletionTimestamp" not in pod["metadata"]:
            pod["metadata"]["deletionTimestamp"] = STAMP
            self._stored(pod)
            self.acted.append(f"evict {namespace}/{name}")
            if not self.is_graceful:
                self.ended()
        return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}

    def _event(self, content: Json) -> Json:
        name = content["metadata"]["name"]
        if name in self.events:
            details = {"name": name, "kind": "events"}
            raise RefusedError(409, "AlreadyExists", f'events "{name}" already exists', details)
        self.events[name] = content
        self.acted.append(f"event {name}")
        return content

    def _stored(self, content: Json) -> Json:
        self._version += 1
        content["metadata"]["resourceVersion"] = str(self._version)
        return content


def merged(old: Any, patch: Any, *, strategic: bool) -> Any:
    """Return an object after a merge patch (RFC 7396), or Kubernetes' strategic one of a node."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    found = copy.deepcopy(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        elif strategic and name == "conditions":
            found[name] = _merged_by_type(found.get(name, []), value)
        else:
            found[name] = merged(found.get(name), value, strategic=strategic)
    return found


def _merged_by_type(old: list[Json], patch: list[Json]) -> list[Json]:
    found = {each["type"]: each for each in old}
    for each in patch:
        if each.get("$patch") == "delete":
            found.pop(each["type"], None)
        else:
            found[each["type"]] = merged(found.get(each["type"], {}), each, strategic=True)
    return list(found.values())


def _without_defaults(node: Json) -> None:
    # Go's omitempty: false, empty lists and maps are left out.
    for part in (node["spec"], node["metadata"]):
        for name in [name for name, value in part.items() if value in (False, [], {})]:
            del part[name]


def _controlled(node: Json) -> None:
    """Do what the controller does at a cordon: it adds a taint of its own, and removes it."""
    taints = [each for each in node["spec"].get("taints", []) if each["key"] != _UNSCHEDULABLE]
    if node["spec"].get("unschedulable"):
        taints.append({"key": _UNSCHEDULABLE, "effect": "NoSchedule", "timeAdded": STAMP})
    if taints:
        node["spec"]["taints"] = taints
    else:
        node["spec"].pop("taints", None)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        api = self.server.api  # type: ignore[attr-defined]
        fault = api.fault(self.command, self.path)
        self.close_connection = True
        told = (fault, "as told") if isinstance(fault, int) else fault
        if isinstance(told, tuple):
            status, message = told
            content: Any = {"kind": "Status", "message": message, "code": status}
        elif fault != "cut":
            status, content = api.answer(self.command, self.path, self.headers, body)
        if fault == "act_500":
            status, content = 500, {"kind": "Status", "message": "etcd has no leader"}
        if fault == "late":
            api.released.wait(60)
        if fault in {"cut", "act_cut"}:
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text[: len(text) // 2] if fault == "half" else text)

    do_PATCH = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - http.server's names

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def serving(api: FakeKubernetes) -> Iterator[str]:
    """Serve it; yield its address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        server.request_queue_size = 128
        server.api = api  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
