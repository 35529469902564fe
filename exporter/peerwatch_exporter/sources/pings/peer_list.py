"""Who the peers are: from the settings, a file, a DNS name; looked up by a thread of its own."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import threading
import time
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.pings.datagrams import is_own
from peerwatch_exporter.sources.pings.partners import partners
from peerwatch_exporter.sources.pings.secret import read_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from peerwatch_exporter.settings.pings import PingsConfig

_LOG = logging.getLogger(__name__)
# Chosen: a change of the file shows within two scrapes of 15 s.
_INTERVAL_SECONDS = 30.0
# Addresses of names are looked up again after this; those that were not found sooner. Chosen: nodes
# keep theirs for days, and a DNS server answers for all nodes.
_NAME_SECONDS = 600.0
# A name has 253 characters at most, and a line's end; the largest clusters have some 12,500 nodes.
_MOST_FILE_BYTES = 4_194_304
MOST_PEERS = 16384


class PeersError(Exception):
    """The peers cannot be read."""

    error_class = "no_peers"


class PeerList:
    """Knows secret and partners, and looks for others again and again.

    Parameters
    ----------
    config
        Where they are from.
    resolve
        Returns the addresses of a name; may take long.

    Attributes
    ----------
    secrets, partners
        What is known now; empty before the first time.
    known
        How many peers there are besides this node.
    problem
        Why something cannot be read; None if all can.
    """

    def __init__(
        self, config: PingsConfig, resolve: Callable[[str], Sequence[str]] | None = None
    ) -> None:
        self._config = config
        self._resolve = resolve or addresses_of
        self._names: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.secrets: tuple[bytes, ...] = ()
        self.partners: tuple[str, ...] = ()
        self.known = 0
        self.problem: Exception | None = None

    def start(self) -> None:
        """Start its thread; returns at once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ping-peers", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread after the call it is in; returns at once."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self.update()
                self.problem = None
            except Exception as error:
                if str(error) != str(self.problem):
                    _LOG.warning("pings incomplete error=%s", error)
                self.problem = error
            self._ended.wait(_INTERVAL_SECONDS)

    def update(self) -> None:
        """Read secret and peers again; what cannot be read stays as it was.

        Raises
        ------
        SecretError, PeersError
            If one of them cannot be read.
        """
        config = self._config
        if config.secret_file is not None:
            self.secrets = read_secrets(config.secret_file)
        hosts = list(config.peers)
        if config.peers_file is not None:
            hosts += hosts_of_file(config.peers_file)
        if config.peers_name is not None:
            hosts.append(config.peers_name)
        hosts = list(dict.fromkeys(hosts))[:MOST_PEERS]
        found = [address for host in hosts for address in self._addresses(host)][:MOST_PEERS]
        if not found:
            raise PeersError(f"None of the {len(hosts)} names of peers has an address.")
        own = {address for address in found if is_own(address)}
        self.known = len({*found} - own)
        self.partners = partners(found, own, config.max_peers, os.uname().nodename)

    def _addresses(self, host: str) -> tuple[str, ...]:
        try:
            return (str(ipaddress.ip_address(host)),)
        except ValueError:
            pass
        now = time.monotonic()
        # The one name of all nodes is looked up each time: they come and go.
        until, known = self._names.get(host, (0.0, ()))
        if now >= until or host == self._config.peers_name:
            found = tuple(self._resolve(host))
            if host != self._config.peers_name:
                # A node's name has several addresses if it has several families: one is enough.
                found = found[:1]
            known = found or known
            self._names[host] = now + (_NAME_SECONDS if found else 0.0), known
        return known


def addresses_of(name: str) -> Sequence[str]:
    """Return the addresses of a name in order; none if it has none."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)
    except OSError:
        return ()
    return sorted({str(each[4][0]).partition("%")[0] for each in found})


def hosts_of_file(path: Path) -> list[str]:
    """Return the hosts of a file in the format of ``file_sd_configs``, without their ports.

    Raises
    ------
    PeersError
        If it cannot be read or is something else.
    """
    # Only who keeps peers in a file pays for reading YAML.
    import yaml  # noqa: PLC0415

    try:
        with path.open("rb") as file:
            content = file.read(_MOST_FILE_BYTES + 1)
        if len(content) > _MOST_FILE_BYTES:
            raise PeersError(f"pings.peers_file {str(path)!r} is above {_MOST_FILE_BYTES} bytes.")
        groups = yaml.safe_load(content)
    except (OSError, yaml.YAMLError, UnicodeError) as error:
        raise PeersError(f"pings.peers_file {str(path)!r} cannot be read: {error}") from error
    try:
        hosts = [_without_port(target) for group in groups or () for target in group["targets"]]
    except (TypeError, KeyError, AttributeError) as error:
        raise PeersError(
            f"pings.peers_file {str(path)!r} must be a list of objects with targets, such as "
            "[{targets: [node-1, 10.0.0.7]}]."
        ) from error
    return _usable(hosts)


def _without_port(target: str) -> str:
    if target.startswith("["):
        return target[1:].partition("]")[0]
    # More than one colon is an IPv6 address.
    host, colon, _ = target.rpartition(":")
    return host if colon and ":" not in host else target


def _usable(hosts: Iterable[str]) -> list[str]:
    return [host for host in hosts if 0 < len(host) <= 253 and host.isascii()]
