"""Where the API server is, and by whose word it is asked; in a pod all of it is found there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, FilePath

from peerwatch_common.settings.secret_file import read_secret
from peerwatch_common.settings.section import Section
from peerwatch_responder.action import UnknownError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Where the kubelet puts what a service account needs; it renews the token in its place.
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ServerOptions(Section):
    """The API server; in a pod nothing is to be set."""

    url: str | None = Field(
        default=None,
        pattern=r"^https?://[^/?#]+/?$",
        description="Its address; unset: that of the cluster in which the responder is a pod.",
    )
    token_file: FilePath | None = Field(
        default=None,
        description="File with the token of a service account, read anew for each request; unset: "
        "the pod's.",
    )
    ca_file: FilePath | None = Field(
        default=None,
        description="Certificates that the server's may be signed by; unset: the pod's.",
    )
    timeout_seconds: float = Field(
        default=10.0, gt=0, le=300, description="Longest time until an answer is complete."
    )


@dataclass(frozen=True, slots=True)
class Access:
    """How one request reaches the server.

    Parameters
    ----------
    url
        Its address, without a slash at its end.
    token
        What is borne; empty: nothing.
    ca_file
        Certificates; None: those of the system.
    """

    url: str
    token: str
    ca_file: str | None


def access(
    options: ServerOptions,
    account: Path = _ACCOUNT,
    environment: Mapping[str, str] = os.environ,
) -> Access:
    """Return how the server is reached now: tokens are renewed while we run.

    Raises
    ------
    UnknownError
        If no server is known, or its token cannot be read.
    """
    url, token, ca_file = options.url, options.token_file, options.ca_file
    if url is None:
        host = environment.get("KUBERNETES_SERVICE_HOST", "")
        if not host:
            raise UnknownError(
                "No API server is known: cluster.server.url is unset, and this is no pod."
            )
        port = environment.get("KUBERNETES_SERVICE_PORT_HTTPS", "443")
        url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        token = token or account / "token"
        ca_file = ca_file or account / "ca.crt"
    try:
        content = read_secret(token) if token is not None else ""
    except (OSError, UnicodeError) as error:
        raise UnknownError(f"The token of the API server cannot be read: {error}.") from error
    if not (content.isascii() and content.isprintable()):
        raise UnknownError(
            f"The token of the API server cannot be sent: {token} has characters that no token has."
        )
    return Access(url.rstrip("/"), content, str(ca_file) if ca_file is not None else None)
