"""A step that marks a node: looked at, then changed only as it was looked at.

A patch carries the uid and the resourceVersion of the node that was judged, so that the server
itself refuses it where anything was changed in between, or the node is another one by now.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from peerwatch_responder.action import AmbiguousError, LaterError, Look, RejectedError, UnknownError
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
# Between looks after an answer that did not come: 3 minutes in all, and the looks' own time.
_LOOKS_AFTER_SECONDS = (0.0, 1.0, 5.0, 15.0, 30.0, 60.0, 60.0)

Json = dict[str, Any]


class Mark(Protocol):
    """One kind of mark on a node."""

    name: str
    content_type: str
    path: str
    verb: str

    def judge(self, node: Mapping[str, Any], target: Target) -> Look:
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

    def look(self) -> Look:
        """As ``Step.look``."""
        node = read_node(self.api, self.target.node)
        if node is None:
            return Look("other", f"Kubernetes has no node {self.target.node}.")
        return self._judged(node)

    def do(self, before: Before) -> str:
        """As ``Step.do``."""
        node = read_node(self.api, self.target.node)
        look = Look("other", "The node is gone.") if node is None else self._judged(node)
        if look.standing == "done":
            return look.text
        if node is None or look.standing == "other":
            raise RejectedError(look.text)
        if dict(look.before) != dict(before):
            raise RejectedError("The node was changed since it was looked at.")
        return _sent(self.api, self.mark, node, self.mark.change(node, self.target), self.look)

    def _judged(self, node: Mapping[str, Any]) -> Look:
        metadata = node["metadata"]
        if (metadata.get("labels") or {}).get(MANAGED_LABEL) == "false":
            return Look("other", f"The node's label {MANAGED_LABEL} is false: hands off.")
        look = self.mark.judge(node, self.target)
        return Look(look.standing, look.text, {"uid": metadata.get("uid"), **look.before})


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

    def look() -> Look:
        found = read_node(api, target.node)
        is_gone = found is None or mark.restore(found, target, before) is None
        return Look("done" if is_gone else "open", "the mark is gone; the answer was lost")

    return _sent(api, mark, node, patch, look)


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


def settled(api: Api, look: Callable[[], Look], error: UnsureError) -> str:
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
    for seconds in _LOOKS_AFTER_SECONDS:
        api.wait(seconds)
        try:
            found = look()
        except UnknownError:
            continue
        if found.standing == "done":
            return f"{found.text} ({error})"
        if found.standing == "other":
            raise RejectedError(f"{found.text} ({error})") from error
        raise LaterError(f"It was not done: {error}") from error
    raise AmbiguousError(f"Whether it acted could not be learnt: {error}") from error


def _sent(
    api: Api, mark: Mark, node: Mapping[str, Any], patch: Json, look: Callable[[], Look]
) -> str:
    metadata = node["metadata"]
    kept = {name: metadata[name] for name in ("uid", "resourceVersion") if name in metadata}
    patch = {**patch, "metadata": {**patch.get("metadata", {}), **kept}}
    path = f"{_NODES}/{quote(str(metadata.get('name')))}{mark.path}"
    try:
        api.send(mark.verb, "PATCH", path, patch, mark.content_type)
    except UnsureError as error:
        return settled(api, look, error)
    return "200"
