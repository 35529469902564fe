"""A step that marks a node: inspected, then changed only as it was found.

A patch carries the uid and the resourceVersion of the node as it was found, so that the server
itself refuses it where anything was changed in between, or the node is another one by now.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from peerwatch_responder.action import (
    AmbiguousError,
    LaterError,
    RejectedError,
    StepState,
    UnknownError,
)
from peerwatch_responder.actions.kubernetes.api import UnsureError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from peerwatch_responder.action import Before, Target
    from peerwatch_responder.actions.kubernetes.api import Api

# Nobody but a person sets it: this node is not ours to touch.
MANAGED_LABEL = "peerwatch/managed"

_NODES = "/api/v1/nodes"
# RFC 1123 subdomain; what alerts name goes into addresses.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
# Between inspections after an answer that did not come: 3 minutes in all, and their own time.
# Chosen: at once where only the answer was lost, and longer than an API server takes to restart.
_INSPECTED_AFTER_SECONDS = (0.0, 1.0, 5.0, 15.0, 30.0, 60.0, 60.0)

Json = dict[str, Any]


class Mark(Protocol):
    """One kind of mark on a node."""

    name: str
    content_type: str
    path: str
    verb: str

    def state_of(self, node: Mapping[str, Any], target: Target) -> StepState:
        """Return whose mark the node has, and what must be known to undo ours."""

    def change(self, node: Mapping[str, Any], target: Target) -> Json:
        """Return the patch that sets our mark."""

    def restore(self, node: Mapping[str, Any], target: Target, before: Before) -> Json | None:
        """Return the patch that takes our mark away; None: it is not there any more."""


@dataclass(frozen=True, slots=True)
class NodeStep:
    """Sets a mark on the target's node.

    Parameters
    ----------
    api
        The API server.
    mark
        What is set.
    target
        Whom it is about.
    """

    api: Api
    mark: Mark
    target: Target

    @property
    def name(self) -> str:
        """The mark's name."""
        return self.mark.name

    def inspect(self) -> StepState:
        """As ``Step.inspect``."""
        node = read_node(self.api, self.target.node)
        if node is None:
            return StepState("other", f"Kubernetes has no node {self.target.node}.")
        return self._state_of(node)

    def do(self, before: Before) -> str:
        """As ``Step.do``."""
        node = read_node(self.api, self.target.node)
        found = StepState("other", "The node is gone.") if node is None else self._state_of(node)
        if found.status == "done":
            return found.text
        if node is None or found.status == "other":
            raise RejectedError(found.text)
        if dict(found.before) != dict(before):
            raise RejectedError("The node was changed since it was looked at.")
        return _sent(self.api, self.mark, node, self.mark.change(node, self.target), self.inspect)

    def _state_of(self, node: Mapping[str, Any]) -> StepState:
        metadata = node["metadata"]
        if (metadata.get("labels") or {}).get(MANAGED_LABEL) == "false":
            return StepState("other", f"The node's label {MANAGED_LABEL} is false: hands off.")
        found = self.mark.state_of(node, self.target)
        return StepState(found.status, found.text, {"uid": metadata.get("uid"), **found.before})


def undo_mark(api: Api, mark: Mark, target: Target, before: Before) -> str:
    """Take our mark from a node, as ``Action.undo``; what else it has stays."""
    node = read_node(api, target.node)
    if node is None:
        return "the node is gone"
    if node["metadata"].get("uid") != before.get("uid"):
        return "the node is another one by now"
    patch = mark.restore(node, target, before)
    if patch is None:
        return "the mark is not ours any more, and stays"

    def inspect() -> StepState:
        found = read_node(api, target.node)
        is_gone = found is None or mark.restore(found, target, before) is None
        return StepState("done" if is_gone else "open", "the mark is gone; the answer was lost")

    return _sent(api, mark, node, patch, inspect)


def read_node(api: Api, name: str) -> Mapping[str, Any] | None:
    """Return a node; None: there is none of that name, or none can have it.

    Raises
    ------
    UnknownError
        If it could not be learnt.
    """
    if not _NAME.fullmatch(name):
        return None
    node = api.get("get nodes", f"{_NODES}/{name}")
    if node is not None and not isinstance(node.get("metadata"), dict):
        raise UnknownError(f"The API server's answer about node {name} is no node.")
    return node


def confirmed(api: Api, inspect: Callable[[], StepState], error: UnsureError) -> str:
    """Return that a request acted whose answer did not come, as far as the world shows it.

    Raises
    ------
    LaterError
        If it has not.
    RejectedError
        If another has done something meanwhile.
    AmbiguousError
        If the world could not be looked at.
    """
    for seconds in _INSPECTED_AFTER_SECONDS:
        api.wait(seconds)
        try:
            found = inspect()
        except UnknownError:
            continue
        if found.status == "done":
            return f"{found.text} ({error})"
        if found.status == "other":
            raise RejectedError(f"{found.text} ({error})") from error
        raise LaterError(f"It was not done: {error}") from error
    raise AmbiguousError(f"Whether it acted could not be learnt: {error}") from error


def _sent(
    api: Api, mark: Mark, node: Mapping[str, Any], patch: Json, inspect: Callable[[], StepState]
) -> str:
    metadata = node["metadata"]
    kept = {name: metadata[name] for name in ("uid", "resourceVersion") if name in metadata}
    patch = {**patch, "metadata": {**patch.get("metadata", {}), **kept}}
    path = f"{_NODES}/{quote(str(metadata.get('name')))}{mark.path}"
    try:
        api.send(mark.verb, "PATCH", path, patch, mark.content_type)
    except UnsureError as error:
        return confirmed(api, inspect, error)
    return "200"
