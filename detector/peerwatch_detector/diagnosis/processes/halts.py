"""Ranks that do not run any more: what is known of how each ended, and whose doing it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from peerwatch_detector.diagnosis.verdict import Action, Domain

# Exceptions of the device, the network or the system below the program, by the names of their
# classes (torch 2.5 to 2.13, the standard library), and of whoever interrupts it.
_FROM_BELOW = frozenset({
    "AcceleratorError",
    "BrokenPipeError",
    "ConnectionAbortedError",
    "ConnectionError",
    "ConnectionRefusedError",
    "ConnectionResetError",
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
    "KeyboardInterrupt",
    "OSError",
    "TimeoutError",
})  # fmt: skip
# A peer that is gone is one of these to the others: gloo's is a plain RuntimeError.
_LOST_PEER = _FROM_BELOW | {"RuntimeError"}


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A rank on a node."""

    rank: int
    node: str


@dataclass(frozen=True, slots=True)
class Halt:
    """A rank that does not run.

    Parameters
    ----------
    place
        Which.
    state
        ``exited``, ``zombie``, ``stopped``, or ``ending``: the program has ended with an exception,
        and its process is still there.
    since
        Unix time on the server's clock.
    how
        Labels of ``rank_exit_info``; empty where nothing is known.
    """

    place: Place
    state: str
    since: float
    how: Mapping[str, str]

    @property
    def kind(self) -> tuple[str, str]:
        """What it ended by; ends of one kind have one cause more likely than not."""
        known = (name for name in ("error", "signal", "code") if self.how.get(name))
        name = next(known, "")
        return name, self.how.get(name, "")

    @property
    def finished(self) -> bool:
        """Whether it ended as programs do that are done."""
        return self.how.get("code") == "0"

    @property
    def domain(self) -> Domain:
        """Whose it is: an exception is the program's, unless it is about what it runs on."""
        return "user" if self.error and self.error not in _FROM_BELOW else "unknown"

    @property
    def action(self) -> Action:
        """What to do about it: who kills a process is to be found out first."""
        if self.domain == "user":
            return "ask"
        return "restart" if self.how.get("error") else "inspect"

    @property
    def error(self) -> str:
        """Class of the exception that ended it, without its module; empty if none is known."""
        return self.how.get("error", "").rpartition(".")[2]

    def words(self, oom: bool) -> str:
        """Return what happened to it, as far as it is known, to follow "rank 3 on node c4"."""
        if self.state == "stopped":
            return "is stopped (SIGSTOP or SIGTSTP)"
        memory = "; the kernel killed a process there for lack of memory" if oom else ""
        dead = {"zombie": " and is a zombie", "ending": ", and its process is still there"}.get(
            self.state, ""
        )
        if error := self.how.get("error"):
            return f"ended with {error}{dead}"
        if name := self.how.get("signal"):
            return f"was killed by {name}{dead}{memory}"
        if code := self.how.get("code"):
            return f"ended with exit code {code}{dead}"
        return f"was killed or ended without its exit handlers{dead}{memory}"


def who_was_first(ends: Sequence[Halt]) -> Halt:
    """Return which of the ranks that ended on one node at once says why.

    Launchers end a node's other ranks in the same second, and those that lose a connection to the
    one that was killed end with an exception of it.
    """
    odd = odd_ones(ends) or ends
    killed = [halt for halt in odd if not halt.error]
    raised = [halt for halt in odd if halt.error]
    own = [halt for halt in raised if halt.error not in _LOST_PEER]
    return min(own or killed or raised, key=lambda halt: (not halt.how.get("signal"), halt.since))


def odd_ones(ends: Sequence[Halt]) -> list[Halt]:
    """Return those that ended otherwise than most of the others; nobody where there is no most.

    Of ranks that end together, the one that was killed among many that lost a connection was
    first, and so was the one with an exception among many that their launchers killed for it.
    """
    usual, count = Counter(halt.kind for halt in ends).most_common(1)[0]
    return [halt for halt in ends if halt.kind != usual] if 2 * count > len(ends) else []
