"""Settings that programs share: a server that is asked, and how a program serves itself."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, FilePath

from peerwatch_common.settings.headers import Headers
from peerwatch_common.settings.section import Section


class AskedServer(Section):
    """A server that is asked over HTTP, and by whose word."""

    url: str = Field(pattern=r"^https?://[^/?#]", description="Its address.")
    username: str = Field(default="", description="Its user; empty: none.")
    password_file: FilePath | None = Field(default=None, description="File with the password.")
    token_file: FilePath | None = Field(default=None, description="File with a bearer token.")
    ca_file: FilePath | None = Field(
        default=None, description="Certificates that the server's may be signed by."
    )
    headers: Headers = Field(
        default_factory=dict, description="Extra HTTP headers, such as X-Scope-OrgID of a tenant."
    )


class ServingConfig(Section):
    """How a program serves over HTTP."""

    config_file: Path | None = Field(
        default=None,
        description="TLS and basic authentication, in the format of Prometheus' "
        "exporter-toolkit; unset: plain HTTP without a password.",
    )
    max_connections: int = Field(
        default=64,
        ge=2,
        le=1024,
        description="Maximum number of connections; one more replaces one that waits for "
        "its client, or is answered 503. Probes are always answered.",
    )
