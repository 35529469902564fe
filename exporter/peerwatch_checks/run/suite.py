"""Which checks a command means, in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.check_results.record import OF_SEVERAL_NODES, SCOPES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from peerwatch_checks.check import Check
    from peerwatch_common.check_results.record import Scope

# Commands that mean all checks of a scope.
SCOPE_COMMANDS: dict[str, Scope] = {"pair": "pair", "offline": "multi"}
# Aegis' limits: configuration and light checks a minute, one host 3 minutes, several 6. The start
# of the program and the end of a check that hangs (GRACE_SECONDS, and 2 s to be killed) are within
# them. `offline` has what its one check may take.
_ROOM = 10.0
SUITE_SECONDS = {
    "config": 60.0 - _ROOM,
    "light": 60.0 - _ROOM,
    "full": 180.0 - _ROOM,
    "pair": 360.0 - _ROOM,
    "offline": 900.0 - _ROOM,
}
# Of `full`, where several nodes take part: Aegis' limit for them comes on top.
_PEERS_SECONDS = 360.0


def chosen(
    words: Iterable[str],
    checks: Mapping[str, Check],
    *,
    exclude: Collection[str] = (),
    peers: bool = False,
) -> tuple[Check, ...]:
    """Return the checks that commands and names mean: those that only read first, each once.

    Parameters
    ----------
    words
        Suites, ``pair``, ``offline``, and names of checks.
    checks
        All there are.
    exclude
        Those that are in no suite on this node; one that is named runs all the same.
    peers
        Whether other nodes take part: without them suites have no checks of several nodes.
    """
    found: dict[str, Check] = {}
    for word in words:
        for name, check in checks.items():
            suite = word in check.suites or SCOPE_COMMANDS.get(word) == check.scope
            alone = check.scope not in OF_SEVERAL_NODES or peers or word in SCOPE_COMMANDS
            if word == name or (suite and alone and name not in exclude):
                found[name] = check
    order = sorted(
        found.values(), key=lambda each: (each.active, SCOPES.index(each.scope), each.name)
    )
    return tuple(order)


def seconds_for(words: Iterable[str], checks: Iterable[Check], *, peers: bool = False) -> float:
    """Return how long a run may take, unless it is said otherwise.

    Parameters
    ----------
    words
        What was asked for: a suite has its time; a named check twice its deadline, for it is
        repeated if it fails.
    checks
        What that means.
    peers
        Whether checks of several nodes take part.
    """
    words = tuple(words)
    named = sum(2 * check.timeout_seconds for check in checks if check.name in words)
    suites = sum(SUITE_SECONDS.get(word, 0.0) for word in words)
    return named + suites + (_PEERS_SECONDS if peers and "full" in words else 0.0)
