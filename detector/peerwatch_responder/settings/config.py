"""The settings file of ``peerwatch-responder``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, FilePath

from peerwatch_common.settings.section import Section
from peerwatch_common.settings.servers import AskedServer, ServingConfig
from peerwatch_responder.settings.policy import PolicyConfig
from peerwatch_responder.settings.retry import RetryConfig


class ListenConfig(Section):
    """Where the responder takes webhooks and serves its metrics."""

    address: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=9402, ge=0, le=65535, description="TCP port; 0 chooses a free one.")


class WebConfig(ServingConfig):
    """How webhooks are taken and metrics are served."""

    token_file: FilePath | None = Field(
        default=None,
        description="File with the token that webhooks and orders of a person bear; unset: none "
        "is asked for.",
    )


class ServerConfig(AskedServer):
    """A server that is asked what fires now, or what is diagnosed."""

    timeout_seconds: float = Field(default=10.0, gt=0, le=300, description="Longest answer.")


class ActionConfig(Section, extra="allow"):
    """One action, by the name that rules use; its other settings are those of its type."""

    type: str = Field(default="", description="The kind of action; empty: as it is named.")

    @property
    def options(self) -> dict[str, Any]:
        """The settings of its type."""
        return dict(self.model_extra or {})


class ClusterConfig(Section, extra="allow"):
    """What runs the jobs; its other settings are those of its type."""

    type: str = Field(default="driver", description="The kind of cluster.")

    @property
    def options(self) -> dict[str, Any]:
        """The settings of its type."""
        return dict(self.model_extra or {})


class ResponderConfig(Section):
    """All settings."""

    dry_run: bool = Field(
        default=True, description="Whether all is decided, shown and counted, and nothing done."
    )
    journal: Path = Field(
        default=Path("/var/lib/peerwatch/responder/journal.jsonl"),
        description="What is done, written down before it is done; in a folder that exists.",
    )
    interval_seconds: float = Field(
        default=5.0, gt=0, le=300, description="How often what waits is decided anew."
    )
    step_seconds: float = Field(
        default=1800.0,
        gt=0,
        le=86_400,
        description="How long a step that may still succeed is tried, such as an eviction that "
        "a disruption budget forbids.",
    )
    listen: ListenConfig = ListenConfig()
    web: WebConfig = WebConfig()
    alertmanager: ServerConfig | None = Field(
        default=None, description="Asked which alerts fire; without it nothing is done."
    )
    prometheus: ServerConfig | None = Field(
        default=None, description="Asked for diagnoses; needed where a rule asks for advice."
    )
    cluster: ClusterConfig = ClusterConfig()
    policy: PolicyConfig = PolicyConfig()
    retry: RetryConfig = RetryConfig()
    actions: dict[str, ActionConfig] = Field(
        default_factory=dict, description="Actions with settings of their own, by name."
    )
