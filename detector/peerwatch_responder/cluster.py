"""The contract of a cluster: what runs the jobs, as far as a decision must know of it.

One file, one registration, beside the actions of the same system; those that need it are handed
the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from peerwatch_responder.backends import import_backends

# Cluster and node, as alerts name them.
Place = tuple[str, str]

# ours: a mark that a responder of ours has left. other: any other mark. unknown: it could not be
# learnt.
Owner = Literal["nobody", "ours", "other", "unknown"]


class ClusterOptions(BaseModel):
    """The settings of a cluster, in section ``cluster`` beside ``type``."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Cluster(Protocol):
    """Asked before each decision; what cannot be learnt is left out of the answer.

    Where nothing can be learnt at all, each may raise ``peerwatch_responder.action.UnknownError``:
    nothing is done then, and its text is shown.
    """

    def size(self) -> int | None:
        """Return how many nodes there are; None: unknown."""

    def owners(self, places: Collection[Place]) -> Mapping[Place, Owner]:
        """Return who has taken nodes out, now.

        A node of ours that is ``nobody``'s again was put back by a person, and is left alone.
        """

    def protected(self) -> frozenset[Place]:
        """Return the nodes that are never touched."""


_MakerT = TypeVar("_MakerT", bound=Callable[[Any], Cluster])


@dataclass(frozen=True, slots=True)
class RegisteredCluster:
    """What is known of a kind of cluster.

    Parameters
    ----------
    name
        As in ``cluster.type``.
    summary
        What it is, in a line.
    make
        Makes it from its settings.
    options
        The class of its settings.
    """

    name: str
    summary: str
    make: Callable[[Any], Cluster]
    options: type[ClusterOptions]


_REGISTRY: dict[str, RegisteredCluster] = {}


def register_cluster(
    name: str, summary: str, *, options: type[ClusterOptions] = ClusterOptions
) -> Callable[[_MakerT], _MakerT]:
    """Register the class or function below, which makes the cluster; parameters as above."""

    def add(make: _MakerT) -> _MakerT:
        if name in _REGISTRY:
            raise ValueError(f"Cluster {name!r} is registered twice.")
        _REGISTRY[name] = RegisteredCluster(name, summary, make, options)
        return make

    return add


def registered_clusters() -> dict[str, RegisteredCluster]:
    """Import every kind of cluster and return them by name."""
    import_backends()
    return dict(sorted(_REGISTRY.items()))
