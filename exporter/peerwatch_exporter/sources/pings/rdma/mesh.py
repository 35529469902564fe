"""The thread that pings over RDMA, one session after the other."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from peerwatch_exporter.sources.pings.rdma.asking import Asker
from peerwatch_exporter.sources.pings.rdma.process import run_client
from peerwatch_exporter.sources.pings.rdma.rping import (
    REFUSALS,
    SMALL_BYTES,
    Outcome,
    Reason,
    State,
    client_command,
)
from peerwatch_exporter.sources.pings.totals import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from peerwatch_exporter.settings.pings import PingsConfig
    from peerwatch_exporter.sources.pings.totals import PingTotals

_LOG = logging.getLogger(__name__)
# A node that cannot ping tries again this often: chosen, somebody has to change it first.
_AGAIN_SECONDS = 30.0
# For what ends after a run's own time-out.
_CLOSE_SECONDS = 2.0


class _Asks(Protocol):
    """Asks one peer for a server, as ``Asker`` does."""

    def ask(self) -> int | Reason:
        """Return the port of a server that waits for this node, or why there is none."""

    def close(self) -> None:
        """Free what it holds."""


class RdmaPings:
    """Pings partners over RDMA; counts nothing of a peer before its first answer.

    Each ping is a session of its own: the peer is asked for a server by a signed request
    (``asking``), and ``rping`` runs once against it.

    Parameters
    ----------
    config
        The settings.
    partners
        Returns the addresses to ping.
    totals
        Where is counted.
    secrets
        Returns the secrets that requests are signed with.
    run
        Runs a client; another one in tests.
    asker
        Makes what asks a peer for a server; another one in tests.
    """

    def __init__(
        self,
        config: PingsConfig,
        partners: Callable[[], Sequence[str]],
        totals: PingTotals,
        secrets: Callable[[], Sequence[bytes]],
        *,
        run: Callable[[Sequence[str], float], Outcome] = run_client,
        asker: Callable[[str, PingsConfig, Callable[[], Sequence[bytes]]], _Asks] = Asker,
    ) -> None:
        self._config = config
        self._partners = partners
        self._totals = totals
        self._secrets = secrets
        self._run = run
        self._make_asker = asker
        self._askers: dict[str, _Asks] = {}
        self._sizes = {"small": SMALL_BYTES, "large": config.rdma_large_bytes}
        self._turn: Iterator[tuple[str, str]] = iter(())
        self._answered: set[str] = set()
        self._failures: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        self._state: State | None = None
        self._next_try = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def state(self) -> State | None:
        """What is wrong with this node; ``ready``: nothing; None before the first run."""
        with self._lock:
            return self._state

    @property
    def failures(self) -> dict[tuple[str, str], int]:
        """Pings that failed, by peer and reason, also of peers that never answered."""
        with self._lock:
            return dict(self._failures)

    def start(self) -> None:
        """Start its thread; returns at once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="rdma pings", daemon=True)
            self._thread.start()

    def leave(self) -> None:
        """Have it end; returns at once."""
        self._ended.set()

    def close(self) -> None:
        """End it; returns within seconds."""
        self.leave()
        if self._thread is None:
            self._forget(())
        else:
            self._thread.join(timeout=self._config.rdma_timeout_seconds + _CLOSE_SECONDS)

    def _loop(self) -> None:
        try:
            while not self._ended.wait(1 / self._config.rdma_pings_per_second):
                try:
                    self.step(time.monotonic())
                except Exception:
                    _LOG.exception("pings over RDMA failed")
        finally:
            self._forget(())

    def step(self, now: float) -> None:
        """Send one ping."""
        partners = tuple(self._partners())
        self._forget(partners)
        turn = next(self._turn, None)
        if turn is None:
            every = [(peer, size) for peer in partners for size in self._sizes]
            random.shuffle(every)
            self._turn = iter(every)
            turn = next(self._turn, None)
        if turn is not None and turn[0] in partners and now >= self._next_try:
            self._ping(*turn, now)

    def _ping(self, peer: str, size: str, now: float) -> None:
        port = self._port(peer)
        if isinstance(port, str):
            with self._lock:
                self._failures[peer, port] += 1
            return
        command = client_command(peer, port, self._sizes[size])
        found = self._run(command, self._config.rdma_timeout_seconds)
        with self._lock:
            self._state = found.state
            if found.reason:
                self._failures[peer, found.reason] += 1
        if found.state != "ready":
            # The next peer would say the same.
            self._next_try = now + _AGAIN_SECONDS
            return
        target = Target(peer, "rdma", size)
        if found.seconds is not None:
            self._answered.add(peer)
            self._totals.answered(target, found.seconds)
        elif peer in self._answered and found.reason not in REFUSALS:
            # Who refuses is there: its server was gone already, or another client had it.
            self._totals.lost(target, "unknown")

    def _port(self, peer: str) -> int | Reason:
        """Return the port of a server for this node, or why there is none."""
        try:
            asker = self._askers.get(peer)
            if asker is None:
                asker = self._askers[peer] = self._make_asker(peer, self._config, self._secrets)
        except OSError:
            return "no_session"
        return asker.ask()

    def _forget(self, partners: Sequence[str]) -> None:
        self._answered &= set(partners)
        for peer in self._askers.keys() - set(partners):
            self._askers.pop(peer).close()
        with self._lock:
            for key in [key for key in self._failures if key[0] not in partners]:
                del self._failures[key]
