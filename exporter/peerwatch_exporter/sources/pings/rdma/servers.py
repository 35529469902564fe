"""Opens a server of ``rping`` for one session of one peer that proved to know the secret.

``rping`` itself knows no secret. So none waits for whoever comes: one is started when a signed
request arrives (``responder``), at the own address that was asked and a port by chance, answers one
client and ends, within seconds in any case.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from secrets import choice
from typing import TYPE_CHECKING, Literal, get_args

from peerwatch_exporter.sources.pings.packets import Status
from peerwatch_exporter.sources.pings.rdma.process import Run, run, state_of_error
from peerwatch_exporter.sources.pings.rdma.rping import (
    State,
    heard_by_server,
    server_command,
    state_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerwatch_exporter.settings.pings import PingsConfig

    Reply = Callable[[Status, int], None]

_LOG = logging.getLogger(__name__)
Result = Literal["served", "unused", "ended", "failed", "too_often", "busy"]
RESULTS: tuple[Result, ...] = get_args(Result)
# A peer may ask for so many at once, as after its restart, and then as often as a node pings.
MOST_AT_ONCE = 4
# Chosen: those not heard of longest are forgotten, and a node is pinged by some dozens.
_MOST_CLIENTS = 1024
# A client has its own time-out from when it is told the port.
_START_SECONDS = 1.0
# What SIGKILL ends is gone within milliseconds.
_CLOSE_SECONDS = 1.0


@dataclass(slots=True)
class _Session:
    """A server from when it is asked for until it has ended."""

    client: str
    own: str
    port: int
    replies: list[Reply]
    listens: bool = False
    is_taken: bool = False
    thread: threading.Thread = field(init=False)


class RpingServers:
    """Opens servers, within limits; safe for threads.

    Parameters
    ----------
    config
        The settings.
    run
        Runs one; another one in tests.
    monotonic
        Seconds.
    """

    def __init__(
        self,
        config: PingsConfig,
        run: Callable[..., Run] = run,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._run = run
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._by_port: dict[int, _Session] = {}
        # What is left to each client, and as of when.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._results: Counter[Result] = Counter(dict.fromkeys(RESULTS, 0))
        self._state: State | None = None
        self._ended = threading.Event()

    @property
    def results(self) -> dict[Result, int]:
        """Sessions that were asked for, by what came of them."""
        with self._lock:
            return dict(self._results)

    @property
    def state(self) -> State | None:
        """What the last server said of this node; None before the first."""
        with self._lock:
            return self._state

    def open(self, client: str, own: str, reply: Reply) -> None:
        """Open one at the own address ``own`` for a client; returns at once.

        Who asks again, as its answer was lost, is told of the same server until that is used.

        Parameters
        ----------
        client
            The address that proved to know the secret.
        own
            The own address that it asked; empty: the kernel did not say.
        reply
            Called once with the status and the port, now or when the server listens.
        """
        with self._lock:
            status, port = self._admit(client, own, reply)
        if status is not None:
            reply(status, port)

    def _admit(self, client: str, own: str, reply: Reply) -> tuple[Status | None, int]:
        """Return the answer; None: it comes later."""
        for each in self._by_port.values():
            if (each.client, each.own) == (client, own) and not each.is_taken:
                if each.listens:
                    return Status.OPEN, each.port
                each.replies = [*each.replies, reply][-MOST_AT_ONCE:]
                return None, 0
        if not self._may(client):
            self._results["too_often"] += 1
            return Status.BUSY, 0
        first = self._config.rdma_port
        free = [
            port
            for port in range(first, first + self._config.rdma_ports)
            if port not in self._by_port
        ]
        if not free or self._ended.is_set():
            self._results["busy"] += 1
            return Status.BUSY, 0
        if not own:
            self._results["failed"] += 1
            self._state = "no_address"
            return Status.NOT_SERVING, 0
        session = _Session(client, own, choice(free), [reply])
        session.thread = threading.Thread(
            target=self._serve, args=(session,), name="rdma server", daemon=True
        )
        session.thread.start()
        self._by_port[session.port] = session
        return None, 0

    def _may(self, client: str) -> bool:
        """Count one more of a client; return whether it does not ask too often."""
        now = self._monotonic()
        left, since = self._left.pop(client, (float(MOST_AT_ONCE), now))
        left += (now - since) * self._config.rdma_pings_per_second
        left = min(left, float(MOST_AT_ONCE))
        self._left[client] = (left - 1 if left >= 1 else left), now
        if len(self._left) > _MOST_CLIENTS:
            self._left.popitem(last=False)
        return left >= 1

    def _serve(self, session: _Session) -> None:
        state: State = "failed"
        timed_out = False
        try:
            found = self._run(
                server_command(session.own, session.port),
                self._config.rdma_timeout_seconds + _START_SECONDS,
                lambda line: self._hear(session, line),
                self._ended.is_set,
            )
            state = state_of(found.output.decode("utf-8", "replace"))
            timed_out = found.timed_out
        except OSError as error:
            state = state_of_error(error)
        except Exception:
            _LOG.exception("a server of rping failed")
        finally:
            self._finish(session, state, timed_out=timed_out)

    def _hear(self, session: _Session, line: bytes) -> None:
        event = heard_by_server(line)
        if event is None:
            return
        with self._lock:
            if event == "listens":
                session.listens = True
                replies, session.replies = session.replies, []
            else:
                session.is_taken, replies = True, []
        for reply in replies:
            reply(Status.OPEN, session.port)

    def _finish(self, session: _Session, state: State, *, timed_out: bool) -> None:
        with self._lock:
            replies, session.replies = session.replies, []
            if not session.listens or state != "ready":
                result: Result = "failed"
                state = "failed" if state == "ready" else state
            elif not session.is_taken:
                result = "unused"
            else:
                result = "ended" if timed_out else "served"
            self._results[result] += 1
            self._state = state
            del self._by_port[session.port]
        for reply in replies:
            reply(Status.NOT_SERVING, 0)

    def leave(self) -> None:
        """Have all of them end; returns at once."""
        self._ended.set()

    def close(self) -> None:
        """End all of them; returns within seconds."""
        self.leave()
        with self._lock:
            threads = [each.thread for each in self._by_port.values()]
        until = time.monotonic() + _CLOSE_SECONDS
        for thread in threads:
            thread.join(timeout=max(0.0, until - time.monotonic()))
