"""The thread that pings and answers: it waits for sockets, and for the time of the next ping."""

from __future__ import annotations

import contextlib
import logging
import random
import selectors
import socket
import threading
import time
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.pings.datagrams import (
    note_own_address,
    open_datagram_socket,
    set_dscp,
)
from peerwatch_exporter.sources.pings.peer_list import PeerList
from peerwatch_exporter.sources.pings.protocols.tcp import TcpPings
from peerwatch_exporter.sources.pings.protocols.udp import UdpPings
from peerwatch_exporter.sources.pings.responder import Responder
from peerwatch_exporter.sources.pings.totals import PingTotals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from peerwatch_exporter.settings.pings import PingsConfig
    from peerwatch_exporter.sources.pings.protocols import Pings
    from peerwatch_exporter.sources.pings.responder import Servers

    _Waiting = tuple[int, Pings | None]

_LOG = logging.getLogger(__name__)
# Chosen: so soon it is seen that pings are to end, and a loss a quarter of the 2 s later.
_LONGEST_WAIT_SECONDS = _EXPIRY_SECONDS = 0.5
# Chosen: a port is freed by its program in seconds, a route comes with an operator or a daemon.
_BIND_AGAIN_SECONDS, _ROUTE_AGAIN_SECONDS = 5.0, 30.0
# Five times the default time-out of a ping.
_LEAST_PATIENCE_SECONDS = 10.0
# In one turn; a node has 64 partners at most by the settings.
_MOST_ACCEPTED = 64
_BACKLOG = 64


class PortError(Exception):
    """Pings cannot be answered on the port; ``error_class`` says so in a word."""

    error_class = "port_unavailable"


class Mesh:
    """Pings partners and answers those of others.

    Parameters
    ----------
    config
        The settings.
    peers
        Knows secret and partners; made of the settings if left out.
    servers
        Opens servers of other protocols for who knows the secret; None: there are none.

    Attributes
    ----------
    totals, responder, peers
        What pings found, how many were answered, and who the peers are.
    problem
        Why pings cannot be answered; None if they can.
    """

    def __init__(
        self, config: PingsConfig, peers: PeerList | None = None, servers: Servers | None = None
    ) -> None:
        self._config = config
        self.peers = peers or PeerList(config)
        self.totals = PingTotals()
        self.responder = Responder(lambda: self.peers.secrets, servers)
        self.problem: Exception | None = None
        self._pings: dict[str, tuple[Pings, ...]] = {}
        self._turn: Iterator[tuple[Pings, str]] = iter(())
        self._datagrams: list[socket.socket] = []
        self._listeners: list[socket.socket] = []
        self._selector = selectors.DefaultSelector()
        self._has_changed, self._may_read = True, True
        self._next_expiry = 0.0
        self._next_bind = self._next_route = self._next_ping = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start its thread; returns at once."""
        if self._thread is None:
            self.peers.start()
            self._thread = threading.Thread(target=self._run, name="pings", daemon=True)
            self._thread.start()

    def leave(self) -> None:
        """Have it end; returns at once."""
        self._ended.set()
        self.peers.close()

    def close(self) -> None:
        """End it; returns within seconds."""
        self.leave()
        if self._thread is not None:
            self._thread.join(timeout=2 * _LONGEST_WAIT_SECONDS)

    @property
    def answering(self) -> int:
        """How many partners ever answered."""
        return sum(any(each.answers for each in every) for every in [*self._pings.values()])

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                try:
                    self._step()
                except Exception:
                    # Whatever arrives from the network, the thread goes on.
                    _LOG.exception("pings failed")
                    self._ended.wait(_LONGEST_WAIT_SECONDS)
        finally:
            self._selector.close()
            for opened in (*self._datagrams, *self._listeners):
                opened.close()
            for every in self._pings.values():
                for each in every:
                    each.close()

    def _step(self) -> None:
        now = time.monotonic()
        if not self._datagrams and now >= self._next_bind:
            self._next_bind = now + _BIND_AGAIN_SECONDS
            self._bind()
        self._follow_partners(now)
        if now >= self._next_ping and self.peers.secrets:
            self._ping(now)
        self._wait(max(0.0, min(self._next_ping - now, _LONGEST_WAIT_SECONDS)))
        if now < self._next_expiry:
            return
        # What is there was read before: only what is missing is late.
        self._next_expiry = now + _EXPIRY_SECONDS
        self._has_changed = True
        for every in self._pings.values():
            for each in every:
                each.expire()

    def _bind(self) -> None:
        try:
            for address in self._config.addresses or _any_address():
                self._open(address)
            self.problem = None
            self._has_changed = True
        except OSError as error:
            for opened in (*self._datagrams, *self._listeners):
                opened.close()
            self._datagrams, self._listeners = [], []
            where = f"{address} port {self._config.port}"
            self.problem = PortError(
                f"Pings cannot be answered on {where}: {error}. Set pings.addresses or pings.port."
            )

    def _open(self, address: str) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        port = self._config.port
        datagrams = open_datagram_socket(family)
        self._datagrams.append(datagrams)
        if family == socket.AF_INET6:
            datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        note_own_address(datagrams)
        set_dscp(datagrams, self._config.dscp)
        datagrams.bind((address, port))
        if self._config.tcp:
            listener = socket.create_server((address, port), family=family, backlog=_BACKLOG)
            listener.setblocking(False)
            set_dscp(listener, self._config.dscp)
            self._listeners.append(listener)

    def _follow_partners(self, now: float) -> None:
        wanted = self.peers.partners
        if wanted == tuple(self._pings) and now < self._next_route:
            return
        self._next_route = now + _ROUTE_AGAIN_SECONDS
        self._has_changed = True
        for address in self._pings.keys() - set(wanted):
            for each in self._pings.pop(address):
                each.close()
        self.totals.keep(wanted)
        self._pings = {each: self._pings.get(each) or self._made(each) for each in wanted}

    def _made(self, peer: str) -> tuple[Pings, ...]:
        try:
            udp = UdpPings(
                peer, self._config, lambda: self.peers.secrets, self.totals, self._patience()
            )
        except OSError:
            # There is no route to it: it is tried again.
            return ()
        if not self._config.tcp:
            return (udp,)
        return (udp, TcpPings(peer, self._config, self.totals))

    def _patience(self) -> float:
        round_seconds = 4 * len(self.peers.partners) / self._config.pings_per_second
        return max(_LEAST_PATIENCE_SECONDS, 3 * round_seconds)

    def _ping(self, now: float) -> None:
        self._next_ping = max(self._next_ping, now - 1.0) + 1 / self._config.pings_per_second
        turn = next(self._turn, None)
        if turn is None:
            every = [
                (each, size)
                for pings in self._pings.values()
                for each in pings
                for size in each.sizes
            ]
            # In another order each round, or nodes that start together ping the same one together.
            random.shuffle(every)
            self._turn = iter(every)
            turn = next(self._turn, None)
        if turn is not None:
            pings, size = turn
            with contextlib.suppress(OSError):
                pings.send(size)
            self._has_changed |= bool(pings.writable())

    def _wait(self, seconds: float) -> None:
        may_read = self.responder.may_read()
        if self._has_changed or may_read != self._may_read:
            self._has_changed, self._may_read = False, may_read
            self._register()
        for key, _ in self._selector.select(seconds):
            opened = key.fileobj
            if isinstance(opened, socket.socket):
                self._ready(opened, key.data)

    def _register(self) -> None:
        """Wait for the sockets that are there now."""
        waiting = self._waiting()
        # First those that go: a new one may have the number of one that was closed.
        for key in [*self._selector.get_map().values()]:
            if key.fileobj not in waiting:
                self._selector.unregister(key.fileobj)
        known = self._selector.get_map()
        for opened, (events, pings) in waiting.items():
            if opened not in known:
                self._selector.register(opened, events, pings)

    def _waiting(self) -> Mapping[socket.socket, _Waiting]:
        """Return the sockets that are waited for, and whose they are; None: the responder's."""
        waiting: dict[socket.socket, _Waiting] = {}
        served = self._datagrams if self._may_read else ()
        waiting |= dict.fromkeys((*served, *self._listeners), (selectors.EVENT_READ, None))
        for every in self._pings.values():
            for each in every:
                waiting |= dict.fromkeys(each.readable(), (selectors.EVENT_READ, each))
                waiting |= dict.fromkeys(each.writable(), (selectors.EVENT_WRITE, each))
        return waiting

    def _ready(self, opened: socket.socket, pings: Pings | None) -> None:
        if pings is not None:
            pings.ready(opened)
            self._has_changed |= bool(pings.writable()) or opened.fileno() < 0
        elif opened in self._datagrams:
            self.responder.serve(opened)
        else:
            _accept(opened)


def _accept(listener: socket.socket) -> None:
    """Close the connections that were opened: there is nothing to say."""
    for _ in range(_MOST_ACCEPTED):
        try:
            accepted, _ = listener.accept()
        except OSError:
            return
        accepted.close()


def _any_address() -> tuple[str, ...]:
    """Return the addresses that stand for all of a node, of the families that it has."""
    return ("0.0.0.0", "::") if _has_ipv6() else ("0.0.0.0",)  # noqa: S104 - pings come from others


def _has_ipv6() -> bool:
    if not socket.has_ipv6:
        return False
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as tried:
            tried.bind(("::", 0))
    except OSError:
        return False
    return True
