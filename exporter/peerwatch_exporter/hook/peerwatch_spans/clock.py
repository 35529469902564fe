"""By how much this host's clock is ahead of that of rank 0's host.

Rank 0 answers datagrams with the times at which it received and answered them; the others send some
now and then. Half of what a round trip takes bounds its error, so the fastest of 16 counts, and a
line through those of several minutes gives the drift. Monotonic clocks are compared: setting a
host's clock changes what is added to them, and not the line.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from .clock_line import ClockLine, RoundTrip

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Nanoseconds = Callable[[], int]

VARIABLE = "PEERWATCH_SPANS_CLOCK"
# Of a burst: where a third of the datagrams is late, all 16 hardly ever are.
ROUND_TRIPS = 16
UNKNOWN, BY_ROUND_TRIPS, IS_RANK_0, SAME_HOST = range(4)
# Token, number, time of sending; in the answer, rank 0's times of receiving and answering, and what
# makes them Unix times. Requests are as long as answers: nobody gains by forging one.
_PACKET = struct.Struct("<8sIqqqq")
_KEY = "peerwatch/clock"
# Rank 0 may be two minutes later than others; whether it has left word is a cheap question.
_TRIES = 120
_TRY_SECONDS = 1.0
# Far above round trips in a cluster; with the pauses, 16 are not all in one queue on the way.
_TIMEOUT_SECONDS = 0.2
_PAUSE_SECONDS = 0.005
# Soon, for the drift to be known; then rarely: 1 ppm of drift is 20 us in 20 s.
_FIRST_PERIOD_SECONDS = 5.0
_PERIOD_SECONDS = 20.0
# Rank 0 needs some 15 us for an answer: with this, its share of a core stays below 0.2 %.
_SECONDS_PER_RANK = 0.12
_SO_TIMESTAMPNS = 35  # asm-generic/socket.h
# Two readings that are further apart were interrupted, and five in a row hardly are.
_READINGS, _SHORT_NS = 5, 10_000
_TIMESPEC = struct.Struct("@ll")


class HostClock:
    """Keeps track of the clock of this host against rank 0's, in a daemon thread of its own.

    Parameters
    ----------
    rank, world_size
        Of this process.
    store
        Where ranks leave one another word, such as torch's: ``set``, ``check`` and ``get``.
    monotonic, unix
        The host's clocks, in nanoseconds.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        store: Any,  # noqa: ANN401 - torch's
        monotonic: Nanoseconds = time.perf_counter_ns,
        unix: Nanoseconds | None = None,
    ) -> None:
        self._rank = rank
        self._world_size = world_size
        self._store = store
        self._monotonic = monotonic
        self._unix = unix
        self._line = ClockLine()
        self._unix_offset_0 = 0
        self._source = IS_RANK_0 if rank == 0 else UNKNOWN
        self._ended = threading.Event()

    def start(self) -> None:
        """Start to answer, or to ask."""
        target = self._answer if self._rank == 0 else self._ask
        if self._world_size > 1:
            threading.Thread(target=target, name="peerwatch-clock", daemon=True).start()

    def stop(self) -> None:
        """Stop soon."""
        self._ended.set()

    def state(self, now: int, unix_offset_ns: int) -> dict[str, Any]:
        """Return the fields of the header, at a monotonic time and what makes it Unix time."""
        source, offset, drift, error = self._source, 0, 0.0, 0.0
        if source == BY_ROUND_TRIPS:
            estimate = self._line.at(now)
            offset = estimate.difference + unix_offset_ns - self._unix_offset_0
            drift, error = estimate.drift, estimate.error / 1e9
        return {
            "clock_reference_ns": now,
            "clock_offset_ns": offset,
            "clock_drift": drift,
            "clock_error_seconds": error,
            "clock_source": source,
        }

    # Rank 0

    def _answer(self) -> None:
        with suppress(Exception):
            server = _socket(":" in os.environ.get("MASTER_ADDR", ""))
            server.bind(("", 0))
            server.settimeout(1.0)
            token = secrets.token_bytes(8)
            word = {
                "port": server.getsockname()[1],
                "host": socket.gethostname(),
                "token": token.hex(),
                "boot": boot_id(),
            }
            self._store.set(_KEY, json.dumps(word))
            with server:
                while not self._ended.is_set():
                    with suppress(OSError):
                        self._answer_next(server, token)

    def _answer_next(self, server: socket.socket, token: bytes) -> None:
        data, received, address = receive(server, self._monotonic)
        if len(data) != _PACKET.size or not secrets.compare_digest(data[:8], token):
            return
        _, number, sent, *_ = _PACKET.unpack(data)
        answered = self._monotonic()
        offset = self._unix_offset(answered)
        server.sendto(_PACKET.pack(token, number, sent, received, answered, offset), address)

    def _unix_offset(self, now: int) -> int:
        return (time.time_ns() if self._unix is None else self._unix()) - now

    # The others

    def _ask(self) -> None:
        with suppress(Exception):
            word = self._word_of_rank_0()
            if word["boot"] == boot_id():
                self._source = SAME_HOST
                return
            token = bytes.fromhex(word["token"])
            host = os.environ.get("MASTER_ADDR") or word["host"]
            found = socket.getaddrinfo(host, word["port"], type=socket.SOCK_DGRAM)[0]
            longest = max(_PERIOD_SECONDS, _SECONDS_PER_RANK * self._world_size)
            pause = _FIRST_PERIOD_SECONDS
            with _socket(found[0] == socket.AF_INET6) as client:
                client.connect(found[4])
                client.settimeout(_TIMEOUT_SECONDS)
                while not self._ended.is_set():
                    with suppress(OSError):
                        self.measure(client, token)
                    # Not all ranks at once, or they would wait for one another.
                    self._ended.wait(pause * (0.75 + secrets.randbelow(500) / 1000))
                    pause = min(2 * pause, longest)

    def _word_of_rank_0(self) -> dict[str, Any]:
        for _ in range(_TRIES):
            if self._ended.is_set():
                break
            # To get what is not there would wait, and others of this process wait with it.
            if self._store.check([_KEY]):
                word: dict[str, Any] = json.loads(self._store.get(_KEY))
                return word
            self._ended.wait(_TRY_SECONDS)
        raise TimeoutError("rank 0 leaves no word")

    def measure(self, client: socket.socket, token: bytes) -> None:
        """Add the fastest of some round trips to the line."""
        fastest: RoundTrip | None = None
        offset = 0
        lost = 0
        for number in range(ROUND_TRIPS):
            try:
                trip, unix_offset = self._round_trip(client, token, number)
            except OSError:
                lost += 1
                if lost > ROUND_TRIPS // 4:
                    break
                continue
            # Less than nothing: a clock was set in between.
            is_fastest = fastest is None or trip.round_trip < fastest.round_trip
            if is_fastest and trip.round_trip >= 0:
                fastest, offset = trip, unix_offset
            self._ended.wait(_PAUSE_SECONDS)
        if fastest is not None:
            self._line.add(fastest)
            self._unix_offset_0 = offset
            self._source = BY_ROUND_TRIPS

    def _round_trip(
        self, client: socket.socket, token: bytes, number: int
    ) -> tuple[RoundTrip, int]:
        sent = self._monotonic()
        client.send(_PACKET.pack(token, number, sent, 0, 0, 0))
        while True:
            data, back, _ = receive(client, self._monotonic)
            # Not an answer to one that was given up.
            if len(data) == _PACKET.size and _PACKET.unpack(data)[:3] == (token, number, sent):
                break
        _, _, _, received, answered, offset = _PACKET.unpack(data)
        difference = (sent + back - received - answered) // 2
        return RoundTrip(back, difference, back - sent - (answered - received)), offset


def receive(receiver: socket.socket, monotonic: Nanoseconds) -> tuple[bytes, int, Any]:
    """Return a datagram, when it came in (monotonic, ns), and from where.

    The kernel notes when: this thread may have waited for the interpreter since then.

    Raises
    ------
    OSError
        If none comes in time.
    """
    data, notes, _, address = receiver.recvmsg(256, socket.CMSG_SPACE(_TIMESPEC.size))
    now, unix = _both(monotonic)
    for level, kind, content in notes:
        if unix is not None and level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = _TIMESPEC.unpack(content)
            waited = unix - (seconds * 10**9 + nanoseconds)
            if 0 <= waited < 10**9:
                return data, now - waited, address
    return data, now, address


def _both(monotonic: Nanoseconds) -> tuple[int, int | None]:
    """Return monotonic and Unix time of one moment; the latter None if there was always a pause.

    A pause between the two readings would make a round trip seem faster than it was, and the
    fastest one counts.
    """
    for _ in range(_READINGS):
        before = monotonic()
        unix = real_time_ns()
        if monotonic() - before < _SHORT_NS:
            return before, unix
    return monotonic(), None


def real_time_ns() -> int:
    """Return the kernel's Unix time in nanoseconds, by which datagrams are stamped."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME)


def boot_id() -> str:
    """Return what processes under one kernel, and thus with one clock, have in common."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123
        return file.read().strip()


def host_clock(rank: int, world_size: int) -> HostClock | None:
    """Return the clock of a rank of ``torch.distributed``; None where there is none to compare."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is None or os.environ.get(VARIABLE, "1") == "0" or not module.is_initialized():
        return None
    return HostClock(rank, world_size, module._get_default_store())  # noqa: SLF001


def _socket(is_ipv6: bool) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET, socket.SOCK_DGRAM)
    with suppress(OSError):
        made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    return made
