"""A cluster of which nothing is known: only a training driver is told what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_responder.cluster import ClusterOptions, register_cluster

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from peerwatch_responder.cluster import Owner, Place


@register_cluster("driver", "only a training driver is told what to do")
class DriverOnly:
    """Where only a training driver is told what to do: what is out is what we told it."""

    def __init__(self, options: ClusterOptions | None = None) -> None:
        self._options = options or ClusterOptions()

    def size(self) -> int | None:
        """Return that it is unknown: one node is out at once."""
        return None

    def owners(self, places: Collection[Place]) -> Mapping[Place, Owner]:
        """Return that nobody else takes nodes out, as nobody else is known."""
        return dict.fromkeys(places, "nobody")

    def protected(self) -> frozenset[Place]:
        """Return none: the driver has its own rules."""
        return frozenset()
