"""Meshes of pings on addresses of the loopback interface, and one that is read until it says."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from peerwatch_exporter.settings.pings import PingsConfig
from peerwatch_exporter.sources.pings.mesh import Mesh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from peerwatch_exporter.sources.pings.responder import Servers
    from peerwatch_exporter.sources.pings.totals import Counts, Target

SECRET = b"a secret of all nodes"


class KnownPeers:
    """Peers that were found already."""

    def __init__(self, partners: Sequence[str], secrets: Sequence[bytes] = (SECRET,)) -> None:
        self.partners = tuple(partners)
        self.secrets = tuple(secrets)
        self.known = len(partners)
        self.problem = None

    def start(self) -> None:
        """They are known."""

    def close(self) -> None:
        """Nothing runs."""


def free_port() -> int:
    """Return a port that nobody has on any address of the loopback interface."""
    with socket.socket() as tried:
        tried.bind(("0.0.0.0", 0))
        return tried.getsockname()[1]


def config_of(directory: Path, port: int, **changes: object) -> PingsConfig:
    """Return settings of a mesh that pings often."""
    secret = directory / "secret"
    secret.write_bytes(SECRET)
    values = {
        "enabled": True,
        "secret_file": secret,
        "port": port,
        "peers": ["localhost"],
        "pings_per_second": 100,
        # A busy machine answers late.
        "timeout_seconds": 10,
        **changes,
    }
    return PingsConfig.model_validate(values)


@contextlib.contextmanager
def running(
    config: PingsConfig, peers: KnownPeers, servers: Servers | None = None
) -> Iterator[Mesh]:
    """Lend a mesh that pings and answers."""
    mesh = Mesh(config, peers, servers)
    mesh.start()
    try:
        yield mesh
    finally:
        mesh.close()


def by_size(counts: dict[Target, Counts], value: Callable[[Counts], float]) -> dict[str, float]:
    """Return a number of each target, by protocol and size."""
    return {f"{each.protocol} {each.size}": value(own) for each, own in counts.items()}
