"""The node's ranks and their jobs, as far as the ranks collector found out; others read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class KnownRank(NamedTuple):
    """A rank on this node; ``is_alive`` is False once its processes are gone."""

    job_id: str
    rank: int
    pid: int | None
    is_alive: bool


class KnownRanks:
    """The ranks as of the last collection; safe for any number of threads."""

    def __init__(self) -> None:
        self._ranks: Sequence[KnownRank] | None = None

    def update(self, ranks: Sequence[KnownRank]) -> None:
        """Replace what is known: ranks that nobody changes any more."""
        self._ranks = ranks

    def all(self) -> Sequence[KnownRank] | None:
        """Return the ranks; None before the first collection, or where there is none."""
        return self._ranks

    def job_id(self, pid: int | None) -> str:
        """Return the job of the rank whose main process this is; empty if it is none's."""
        for rank in self._ranks or ():
            if rank.pid == pid:
                return rank.job_id
        return ""
