"""An alert as Alertmanager sends it, and what tells two of them apart."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert of a notification.

    Parameters
    ----------
    labels, annotations
        As its rule wrote them.
    fingerprint
        Alertmanager's hash of the labels; the same for each time that the alert fires.
    starts_at
        Since when it fires, in Unix seconds.
    ends_at
        Since when it is resolved, in Unix seconds; None: it fires.
    """

    labels: Mapping[str, str]
    fingerprint: str
    starts_at: float
    ends_at: float | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its rule."""
        return self.labels.get("alertname", "")

    @property
    def node(self) -> str:
        """The node it names; empty: none."""
        return self.labels.get("node", "")

    @property
    def job_id(self) -> str:
        """The training job it names; empty: none."""
        return self.labels.get("job_id", "")

    @property
    def cluster(self) -> str:
        """The cluster it is of; empty where there is only one."""
        return self.labels.get("cluster", "")

    @property
    def is_firing(self) -> bool:
        """Whether it was not resolved when it was sent."""
        return self.ends_at is None

    def key(self, actions: tuple[str, ...]) -> str:
        """Return what identifies the answer to this alert, under retries and from every sender.

        A fingerprint hashes labels only, so the start belongs to it: an alert that fires again
        next week is another one.

        Parameters
        ----------
        actions
            What the answer does, in its order.
        """
        text = "\n".join((self.fingerprint, f"{self.starts_at:.3f}", self.node, *actions))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
