"""The command lines of ``rping``, and what its output says.

Its words are those of rping and librdmacm of rdma-core 44, as tests/exporter/test_pings_rdma.py has
them from runs over soft RoCE. It ends with status 0 also where the connection broke on the way:
only the exchanges that it prints count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

PROGRAM = "rping"
# The first has the time that the connection takes; the mean of the other three is the result.
EXCHANGES = 4
# As of datagrams (``packets``).
SMALL_BYTES = 64
# rping says "valid range is 23 to 65536", and takes one less.
MOST_BYTES = 65535

State = Literal[
    "ready", "tool_missing", "no_device", "no_access", "no_locked_memory", "no_address", "failed"
]
STATES: tuple[State, ...] = get_args(State)
Reason = Literal[
    "no_session",
    "busy",
    "not_serving",
    "not_rdma",
    "unreachable",
    "timeout",
    "broken",
    "other",
]
# The peer's host or exporter says so: nothing was lost on the way.
REFUSALS: tuple[Reason, ...] = ("no_session", "busy", "not_serving")

_ANSWER = b"ping data: rdma-ping-"
_LISTENS = b"rdma_listen"
_TAKEN = b"cma_event type RDMA_CM_EVENT_CONNECT_REQUEST "
# What is wrong with this node, whomever it pings.
_LOCAL: tuple[tuple[State, re.Pattern[str]], ...] = (
    ("no_device", re.compile(r"No RDMA devices were detected|event channel: No such device")),
    ("no_access", re.compile(r"failed to create RDMA CM event channel|Permission denied")),
    ("no_locked_memory", re.compile(r"reg_mr failed|Cannot allocate memory")),
    (
        "no_address",
        re.compile(
            r"rdma_bind_addr: (?:Address already in use|Cannot assign requested|No such device)"
        ),
    ),
)
# What is wrong with the way to one peer. Refused by the peer's connection manager: InfiniBand and
# RoCE say 8 (no such service) or 28, iWARP -111.
_REMOTE: tuple[tuple[Reason, re.Pattern[str]], ...] = (
    ("not_serving", re.compile(r"RDMA_CM_EVENT_REJECTED|RDMA_CM_EVENT_CONNECT_ERROR, error -111")),
    ("not_rdma", re.compile(r"rdma_resolve_(?:addr|route): No such device")),
    (
        "unreachable",
        re.compile(
            r"RDMA_CM_EVENT_(?:UNREACHABLE|ADDR_ERROR|ROUTE_ERROR|CONNECT_ERROR)"
            r"|rdma_resolve_\w+: (?:Network is unreachable|No route to host|Connection timed out)"
        ),
    ),
    ("broken", re.compile(r"cq completion failed|DISCONNECT EVENT")),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one ping.

    Parameters
    ----------
    seconds
        Mean of the exchanges after the first; None: it was not answered in full.
    state
        ``ready``, or what is wrong with this node.
    reason
        What is wrong with the way to the peer; empty: nothing.
    text
        The last line of the tool that says so.
    """

    seconds: float | None
    state: State = "ready"
    reason: Reason | Literal[""] = ""
    text: str = ""


def client_command(peer: str, port: int, size_bytes: int) -> list[str]:
    """Return what pings a peer."""
    return [PROGRAM, "-c", "-v", *_numbers(port, size_bytes), "-C", str(EXCHANGES), "-a", peer]


def server_command(address: str, port: int) -> list[str]:
    """Return what answers one client, whose pings may have any size, on one address."""
    # Its buffer must hold what the largest client sends; -d has it say how far it is.
    return [PROGRAM, "-s", "-d", *_numbers(port, MOST_BYTES), "-a", address]


def heard_by_server(line: bytes) -> Literal["listens", "taken"] | None:
    """Return what a line of a server says; ``taken``: by a client."""
    if line == _LISTENS:
        return "listens"
    return "taken" if line.startswith(_TAKEN) else None


def outcome(output: bytes, times: list[float], *, timed_out: bool) -> Outcome:
    """Return what a run says.

    Parameters
    ----------
    output
        All that the tool wrote.
    times
        When each line of it came, in monotonic seconds.
    timed_out
        Whether it was ended because it took too long.
    """
    lines = output.splitlines()
    answered = [time for line, time in zip(lines, times, strict=False) if line.startswith(_ANSWER)]
    if len(answered) >= EXCHANGES:
        return Outcome((answered[-1] - answered[0]) / (len(answered) - 1))
    said = [line.decode("utf-8", "replace") for line in lines if not line.startswith(_ANSWER)]
    text = "\n".join(said)
    last = said[-1][:200] if said else ""
    state = state_of(text)
    if state != "ready" and not answered:
        return Outcome(None, state, text=last)
    if timed_out and not answered:
        return Outcome(None, reason="timeout", text=last)
    reason = next((name for name, pattern in _REMOTE if pattern.search(text)), None)
    if answered:
        reason = "broken"
    return Outcome(None, reason=reason or "other", text=last)


def state_of(text: str) -> State:
    """Return what is wrong with this node, as the tool says; ``ready``: nothing."""
    return next((name for name, pattern in _LOCAL if pattern.search(text)), "ready")


def _numbers(port: int, size_bytes: int) -> list[str]:
    return ["-p", str(port), "-S", str(size_bytes)]
