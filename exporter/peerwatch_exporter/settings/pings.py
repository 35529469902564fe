"""Whom a node pings, and how much."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from peerwatch_exporter.settings.section import Section

_PORTS = 65536  # of 16 bits
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_.])?")


def _is_host(host: str) -> str:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if not _NAME.fullmatch(host):
            raise ValueError(
                f"{host!r} is neither an address nor a host name; all peers use pings.port, so "
                "leave the port out"
            ) from None
    return host


def _is_address(address: str) -> str:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise ValueError(f"{address!r} is no address, such as 10.0.0.7 or fd00::7") from None
    return address


_Host = Annotated[str, AfterValidator(_is_host)]


class PingsConfig(Section):
    """Pings between the exporters of a cluster, which show who reaches whom."""

    enabled: bool = Field(
        default=False, description="Ping other nodes, and answer their pings (docs/pings.md)."
    )
    secret_file: Path | None = Field(
        default=None,
        strict=False,
        description="File with the secret that all nodes share, at least 16 characters. Several "
        "lines: the first signs, all are accepted, so that it can be replaced without a gap.",
    )
    addresses: list[Annotated[str, AfterValidator(_is_address)]] = Field(
        default=[],
        max_length=16,
        description="Own addresses on which pings are answered, such as those of the RoCE "
        "interfaces; empty: all.",
    )
    port: int = Field(
        default=9403, ge=1, le=65535, description="UDP and TCP port, the same on all nodes."
    )
    peers: list[_Host] = Field(
        default=[],
        max_length=16384,
        description="Addresses or host names of the nodes; this node may be among them.",
    )
    peers_file: Path | None = Field(
        default=None,
        strict=False,
        description="File with further nodes in the format of Prometheus' file_sd_configs, read "
        "again each half minute; its ports are not used.",
    )
    peers_name: _Host | None = Field(
        default=None,
        description="DNS name that has the addresses of all nodes, such as that of a headless "
        "Service.",
    )
    max_peers: int = Field(
        default=8,
        ge=2,
        le=64,
        description="Maximum number of nodes that this node pings. Of more they are chosen so "
        "that each is pinged by as many.",
    )
    pings_per_second: float = Field(
        default=10, ge=0.1, le=200, description="Pings sent per second, to all peers together."
    )
    large_bytes: int = Field(
        default=1400,
        ge=512,
        le=8900,
        description="Size of large pings; small ones have 64 bytes.",
    )
    full_packets: bool = Field(
        default=True,
        description="Also send pings as large as the interface allows, at most 8900 bytes, which "
        "may not be divided.",
    )
    dscp: int = Field(
        default=0,
        ge=0,
        le=63,
        description="DSCP of pings and answers. With that of RoCE traffic (often 26) they share "
        "its queues and priority: use it for a few pings per second only.",
    )
    tcp: bool = Field(default=True, description="Also open TCP connections, and close them again.")
    timeout_seconds: float = Field(
        default=2, ge=0.1, le=10, description="A ping without an answer for this long is lost."
    )

    rdma: bool = Field(
        default=False,
        description="Also ping over RDMA by rping of rdma-core, and open a server of it for each "
        "ping of a peer that signs its request with the secret (docs/pings.md).",
    )
    rdma_port: int = Field(
        default=9404, ge=1, le=65535, description="First port for servers of rping."
    )
    rdma_ports: int = Field(
        default=8,
        ge=1,
        le=64,
        description="Number of ports from rdma_port on: as many servers of rping run at most.",
    )
    rdma_pings_per_second: float = Field(
        default=0.5,
        ge=0.01,
        le=10,
        description="Pings over RDMA per second, to all peers together: each is a run of rping. "
        "As often one peer may ask this node for a server.",
    )
    rdma_large_bytes: int = Field(
        default=32768,
        ge=512,
        le=65535,
        description="Size of large pings over RDMA; small ones have 64 bytes.",
    )
    rdma_timeout_seconds: float = Field(
        default=5,
        ge=0.5,
        le=30,
        description="A run of rping is ended after this long, a server a second later.",
    )

    @model_validator(mode="after")
    def _needs_a_secret_and_peers(self) -> PingsConfig:
        if self.enabled and self.secret_file is None:
            raise ValueError(
                "enabled needs secret_file: pings are only answered to who knows the secret"
            )
        if self.enabled and not (self.peers or self.peers_file or self.peers_name):
            raise ValueError("enabled needs peers, peers_file or peers_name")
        if self.rdma and self.rdma_port + self.rdma_ports > _PORTS:
            raise ValueError(
                f"rdma_port {self.rdma_port} and rdma_ports {self.rdma_ports} go beyond port "
                f"{_PORTS - 1}; lower one of them"
            )
        return self
